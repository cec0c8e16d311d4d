"""Descriptions of Lustre sites for tests."""


def lustre(*groups, region=None):
    """A site with these groups of OSTs: class, names as a range, bandwidth, latency in ms."""
    head = 'version = 1\nfs = "lustre"\n' + (f'region = "{region}"\n' if region else "")
    lines = '[[targets]]\nclass = "{}"\nnames = ["{}"]\nbandwidth = "{}"\nlatency_ms = {}\n'
    return head + "".join(lines.format(*group) for group in groups)
