"""The AWS calls of a machine, with Python's standard library: a cloud image has nothing else."""

import datetime
import hashlib
import hmac
import json
import os
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree

METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")


def metadata(path):
    """Asks the instance metadata service, version 2."""
    request = urllib.request.Request(
        f"{METADATA}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    )
    token = urllib.request.urlopen(request, timeout=5).read().decode()
    request = urllib.request.Request(f"{METADATA}/latest/{path}", headers={"X-aws-ec2-metadata-token": token})
    return urllib.request.urlopen(request, timeout=5).read().decode()


def credentials():
    """Temporary credentials of the machine's role: AccessKeyId, SecretAccessKey, Token."""
    role = metadata("meta-data/iam/security-credentials/").split()[0]
    return json.loads(metadata(f"meta-data/iam/security-credentials/{role}"))


def signature(method, host, path, query, headers, body_hash, service, region, secret, now):
    """The Authorization header's signed headers, scope and signature: AWS Signature Version 4."""
    day = now[:8]
    names = ";".join(sorted(headers))
    request = "\n".join(
        [method, path, query, *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, body_hash]
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request", text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return names, scope, key.hex()


class Aws:
    """Calls services of one region; `endpoint` stands in for all of them."""

    def __init__(self, region, endpoint=None):
        self.region = region
        self.endpoint = endpoint

    def call(self, service, method, path="/", query=None, body=b"", headers=None, bucket=None):
        """Opens the response of one signed request."""
        keys = credentials()
        if self.endpoint:
            base, path = self.endpoint, f"/{bucket}{path}" if bucket else path
        else:
            host = f"{bucket}.s3" if bucket else service
            base = f"https://{host}.{self.region}.amazonaws.com"
        host = urllib.parse.urlsplit(base).netloc
        path = urllib.parse.quote(path)
        query = urllib.parse.urlencode(sorted((query or {}).items()), quote_via=urllib.parse.quote)
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        body_hash = hashlib.sha256(body).hexdigest()
        signed = {
            "host": host,
            "x-amz-content-sha256": body_hash,
            "x-amz-date": now,
            "x-amz-security-token": keys["Token"],
            **(headers or {}),
        }
        names, scope, value = signature(
            method, host, path, query, signed, body_hash, service, self.region, keys["SecretAccessKey"], now
        )
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys['AccessKeyId']}/{scope}, SignedHeaders={names}, Signature={value}"
        )
        del signed["host"]
        url = f"{base}{path}" + (f"?{query}" if query else "")
        request = urllib.request.Request(url, data=body or None, method=method, headers=signed)
        return urllib.request.urlopen(request, timeout=60)

    def fetch(self, bucket, key, to, sha256):
        """Downloads an object; a content that is not the expected one is an error, and nothing is written."""
        digest = hashlib.sha256()
        with self.call("s3", "GET", f"/{key}", bucket=bucket) as response, open(f"{to}.part", "wb") as file:
            while part := response.read(1 << 20):
                digest.update(part)
                file.write(part)
        if digest.hexdigest() != sha256:
            os.unlink(f"{to}.part")
            raise ValueError(f"{bucket}/{key} has SHA-256 {digest.hexdigest()}, not {sha256}")
        os.rename(f"{to}.part", to)

    def secret(self, name):
        """The current value of a secret, or None while it has none."""
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "secretsmanager.GetSecretValue"}
        try:
            with self.call(
                "secretsmanager", "POST", body=json.dumps({"SecretId": name}).encode(), headers=headers
            ) as response:
                return json.loads(json.load(response)["SecretString"])
        except urllib.error.HTTPError as error:
            if error.code == 400 and "ResourceNotFoundException" in error.read().decode():
                return None
            raise

    def machine_serves(self, group, hook, instance):
        """Ends the wait of a lifecycle hook. A machine that does not wait any more is no error."""
        query = {"Action": "CompleteLifecycleAction", "Version": "2011-01-01", "LifecycleActionResult": "CONTINUE"}
        query |= {"AutoScalingGroupName": group, "LifecycleHookName": hook, "InstanceId": instance}
        try:
            self.call("autoscaling", "GET", query=query).close()
        except urllib.error.HTTPError as error:
            if not (error.code == 400 and "No active Lifecycle Action" in error.read().decode()):
                raise

    def instances(self, tags):
        """Private addresses of the running instances that have these tags."""
        query = {"Action": "DescribeInstances", "Version": "2016-11-15", "MaxResults": "1000"}
        query |= {"Filter.1.Name": "instance-state-name", "Filter.1.Value.1": "running"}
        for number, (name, value) in enumerate(sorted(tags.items()), 2):
            query |= {f"Filter.{number}.Name": f"tag:{name}", f"Filter.{number}.Value.1": value}
        found, token = [], True
        while token:
            with self.call("ec2", "GET", query=query) as response:
                tree = ElementTree.parse(response)
            found += [
                element.text
                for item in tree.iter()
                if item.tag.endswith("}instancesSet")
                for instance in item
                for element in instance
                if element.tag.endswith("}privateIpAddress")
            ]
            token = next((item.text for item in tree.getroot() if item.tag.endswith("}nextToken")), None)
            query |= {"NextToken": token or ""}
        return sorted(found)
