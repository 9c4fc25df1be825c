"""Exit statuses of drills."""

# A skipped drill has the status of a skipped test in automake.
PASSED, FAILED, SKIPPED = 0, 1, 77


def summary(statuses):
    """The last lines of a run of several drills, and its exit status. `statuses` has the status of each drill by its name."""
    skipped = [name for name, status in statuses.items() if status == SKIPPED]
    failed = [name for name, status in statuses.items() if status not in (PASSED, SKIPPED)]
    passed = len(statuses) - len(skipped) - len(failed)
    lines = [f"drills: {passed} passed, {len(skipped)} skipped, {len(failed)} failed"]
    lines += [f"{what}: {' '.join(names)}" for what, names in (("SKIPPED", skipped), ("FAILED", failed)) if names]
    return lines, FAILED if failed else SKIPPED if skipped else PASSED
