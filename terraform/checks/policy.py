#!/usr/bin/env python3
"""Runs checkov, prints its findings, and fails on one and on a file that checkov could not parse.

    terraform/checks/policy.py CHECKOV FLAG...

checkov itself leaves out a file that it cannot parse, and ends with success.
"""

import json
import os
import subprocess
import sys


def main(checkov, *flags):
    command = [checkov, "--compact", "--skip-download", "--output", "json", *flags]
    # checkov gives up on a file after 10 s, which a busy machine exceeds.
    patient = {"HCL_PARSE_TIMEOUT_SEC": "600"} | os.environ
    done = subprocess.run(command, stdout=subprocess.PIPE, env=patient, check=False)
    try:
        report = json.loads(done.stdout)
        results, summary = report["results"], report["summary"]
    except (ValueError, KeyError, TypeError):
        return f"checkov ended with {done.returncode}, and found no resource: {done.stdout.decode()[-500:]}"
    wrong = [f"{path}: checkov cannot parse this file, so it checked nothing in it" for path in results["parsing_errors"]]
    wrong += [
        f"{found['check_id']}: {found['check_name']}: {found['resource']}: {found['file_path']}" for found in results["failed_checks"]
    ]
    if len(wrong) != summary["parsing_errors"] + summary["failed"]:
        wrong.append(f"checkov counts other findings: {summary}")
    if done.returncode and not wrong:
        wrong.append(f"checkov ended with {done.returncode}")
    if not wrong:
        print(f"{summary['passed']} checks of {summary['resource_count']} resources passed")
    return "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
