#!/bin/sh
# MLflow's server over a PostgreSQL database, with a folder, or a bucket, for artifacts. To be run in an environment that
# has MLflow and the database's driver: pip install 'gigaslide[postgresql]', for a bucket also boto3.
#
#   MLFLOW_BACKEND_STORE_URI=postgresql+psycopg://USER:PASSWORD@DATABASE-HOST/mlflow deploy/mlflow/server.sh
#
# Passwords are read from the environment, never from the command line, which everybody on the machine can read.
set -eu

: "${MLFLOW_BACKEND_STORE_URI:?has to name the database: postgresql+psycopg://USER:PASSWORD@HOST/DATABASE}"
# Where artifacts (networks, reports) are kept: a folder, or s3://BUCKET/PREFIX with AWS_ACCESS_KEY_ID,
# AWS_SECRET_ACCESS_KEY and, for MinIO, MLFLOW_S3_ENDPOINT_URL. Clients send them to the server and need none of these.
export MLFLOW_ARTIFACTS_DESTINATION="${MLFLOW_ARTIFACTS_DESTINATION:-$PWD/mlartifacts}"
# 127.0.0.1 is for this machine alone. With another one the server takes everybody who reaches it: use it within a
# network that you trust, or with MLflow's own --app-name basic-auth or a proxy that asks for a password.
HOST="${HOST:-127.0.0.1}"
PORT="${PORT:-5000}"

export MLFLOW_DISABLE_TELEMETRY=true
# Runs and artifacts need none of the job processes that MLflow starts otherwise.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
# Names under which clients reach it, as they write them: names and addresses that are not private are refused otherwise.
if [ -n "${ALLOWED_HOSTS:-}" ]; then
  exec mlflow server --host "$HOST" --port "$PORT" --workers 2 --allowed-hosts "$ALLOWED_HOSTS"
fi
exec mlflow server --host "$HOST" --port "$PORT" --workers 2
