"""python3 terraform/modules/machine/boot/aws_test.py"""

import unittest

from aws import signature


class Signature(unittest.TestCase):
    def test_the_example_of_the_documentation(self):
        """The request that AWS's page on Signature Version 4 goes through."""
        names, scope, value = signature(
            "GET",
            "iam.amazonaws.com",
            "/",
            "Action=ListUsers&Version=2010-05-08",
            {
                "content-type": "application/x-www-form-urlencoded; charset=utf-8",
                "host": "iam.amazonaws.com",
                "x-amz-date": "20150830T123600Z",
            },
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "iam",
            "us-east-1",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            "20150830T123600Z",
        )
        self.assertEqual(names, "content-type;host;x-amz-date")
        self.assertEqual(scope, "20150830/us-east-1/iam/aws4_request")
        self.assertEqual(value, "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7")


if __name__ == "__main__":
    unittest.main()
