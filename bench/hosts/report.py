"""The figures of bench/hosts, their goals, and whether they are reached."""


class Report:
    def __init__(self):
        self.results = []

    def add(self, name, value, unit, floor=None, goal=None, note="", details=None):
        """`goal`: (`at least` or `at most`, a figure), of the value, or of value over floor where there is a floor and the unit is a rate."""
        row = {"name": name, "value": value, "unit": unit, "note": note}
        if floor is not None:
            row |= {"floor": floor, "ratio": value / floor}
        if details is not None:
            row["details"] = details
        if goal is not None:
            word, bound = goal
            compared = row["ratio"] if floor is not None and unit == "MB/s" else value - floor if floor is not None else value
            row |= {"goal": f"{word} {bound:g}", "compared": compared, "reached": compared >= bound if word == "at least" else compared <= bound}
        self.results.append(row)
        print(self.line(row), flush=True)

    @staticmethod
    def line(row):
        text = f"{row['name']:<28} {row['value']:>10.4g} {row['unit']:<5}"
        if "floor" in row:
            text += f" floor {row['floor']:>9.4g}   ratio {row['ratio']:.3f}"
        return text + (f"   {row['note']}" if row["note"] else "")

    def print_verdicts(self):
        print()
        for row in self.results:
            if "goal" in row:
                kind = "of the floor" if row["unit"] == "MB/s" else f"{row['unit']} more than the floor" if "floor" in row else row["unit"]
                print(f"{'reached' if row['reached'] else 'MISSED ':<8} {row['name']:<28} {row['goal']} {kind}: {row['compared']:.3g}")
