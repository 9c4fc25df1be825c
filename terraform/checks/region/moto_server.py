"""moto's server, with the one call of a machine that moto lacks."""

import sys

from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import EmptyResult
from moto.server import main


def complete_lifecycle_action(self):
    names = ["AutoScalingGroupName", "LifecycleHookName", "InstanceId"]
    print("serves: " + ", ".join(self._get_param(name) for name in names), flush=True)
    return EmptyResult()


AutoScalingResponse.complete_lifecycle_action = complete_lifecycle_action
main(sys.argv[1:])
