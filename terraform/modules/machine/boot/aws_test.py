"""python3 terraform/modules/machine/boot/aws_test.py"""

import io
import unittest

from aws import Aws, signature


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


class Instances(unittest.TestCase):
    def test_the_addresses_of_all_pages(self):
        """EC2 may answer with a part and a token, also a part without any instance."""
        pages = {
            None: (["10.0.0.3"], "second"),
            "second": ([], "third"),
            "third": (["10.0.0.1", "10.0.0.2"], ""),
        }
        queries = []

        class Pages(Aws):
            def call(self, service, method, query=None, **_):
                queries.append(query)
                addresses, token = pages[query.get("NextToken")]
                items = "".join(
                    f"<item><privateIpAddress>{address}</privateIpAddress></item>" for address in addresses
                )
                return io.BytesIO(
                    '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet><item>'
                    f"<instancesSet>{items}</instancesSet></item></reservationSet><nextToken>{token}</nextToken>"
                    "</DescribeInstancesResponse>".encode()
                )

        found = Pages("eu-central-1").instances({"millrace-role": "edge"})
        self.assertEqual(found, ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
        self.assertEqual([query["Filter.2.Value.1"] for query in queries], ["edge"] * 3)


if __name__ == "__main__":
    unittest.main()
