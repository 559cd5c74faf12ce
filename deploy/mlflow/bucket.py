"""Make a bucket on the S3 server of MLFLOW_S3_ENDPOINT_URL unless it is there: bucket.py NAME."""

import os
import sys

import boto3

client = boto3.client("s3", endpoint_url=os.environ["MLFLOW_S3_ENDPOINT_URL"])
if sys.argv[1] not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
    client.create_bucket(Bucket=sys.argv[1])
