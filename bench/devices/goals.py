"""The goals of the benchmark on slow devices, and whether its results reach them."""
import statistics

MIN_OPT_OF_BEST = 0.98
MAX_SPREAD = 0.05
MAX_MEDIAN_ERROR, MAX_ERROR = 0.15, 0.30
MIN_STREAM = 0.8
MIN_FOREGROUND, MIN_FOLLOWED = 0.9, 1.2


def print_verdicts(results):
    print()
    for goal, reached, found in verdicts(results):
        print(f"{'reached' if reached else 'MISSED ':<8} {goal}: {found}")


def verdicts(results):
    """(goal, whether it is reached, what was found), for those that something was measured for."""
    cases = {}
    for row in results:
        if "policy" in row and "sum_of_devices_mb_s" not in row:
            cases.setdefault(row["case"], {})[row["policy"]] = row
    if cases:
        yield opt_is_best(cases)
        yield predictions_hold([row for rows in cases.values() for row in rows.values()])
    for row in results:
        if "sum_of_devices_mb_s" in row:
            share, bare = (row[name] / row["sum_of_devices_mb_s"] for name in ("mb_s", "bare_mb_s"))
            yield (f"{row['case']} at least {MIN_STREAM} of the sum of the devices", share >= MIN_STREAM,
                   f"{share:.2f} (plain files without Stripewise: {bare:.2f}; the devices' own time alone: "
                   f"{row['paced_mb_s'] / row['sum_of_devices_mb_s']:.2f})")
    for row in results:
        if row["case"] != "moves-auto":
            continue
        if row["foreground"] is None:
            yield f"foreground at least {MIN_FOREGROUND} while moves run", False, "no moves ran"
        else:
            yield f"foreground at least {MIN_FOREGROUND} while moves run", row["foreground"] >= MIN_FOREGROUND, f"{row['foreground']:.2f}"
        yield f"a changed hot set followed to at least {MIN_FOLLOWED} x", row["gain"] >= MIN_FOLLOWED, f"{row['gain']:.2f}"


def opt_is_best(cases):
    behind = []
    for case, rows in cases.items():
        share = rows["opt"]["mb_s"] / max(row["mb_s"] for row in rows.values())
        spread = min(MAX_SPREAD, max(row["spread"] for row in rows.values()))
        if share < min(MIN_OPT_OF_BEST, 1 - spread):
            behind.append(f"{case} {share:.2f}")
    found = f"behind in {', '.join(behind)}" if behind else f"in all {len(cases)} cases"
    return f"opt at least {MIN_OPT_OF_BEST} of the best, or within the case's spread (at most {MAX_SPREAD:.0%})", not behind, found


def predictions_hold(rows):
    errors = {f"{row['case']} {row['policy']}": row["predicted_mb_s"] / row["mb_s"] - 1 for row in rows}
    median = statistics.median(map(abs, errors.values()))
    worst = max(errors, key=lambda name: abs(errors[name]))
    reached = median <= MAX_MEDIAN_ERROR and abs(errors[worst]) <= MAX_ERROR
    return (f"predictions within {MAX_MEDIAN_ERROR:.0%} in the median and {MAX_ERROR:.0%} at worst", reached,
            f"median {median:.0%}, worst {errors[worst]:+.0%} ({worst})")
