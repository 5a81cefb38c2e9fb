// The options that say where a coordinator keeps its jobs, alike for every command that opens them.
import { Option } from 'commander'

export function stateOption(): Option {
  return new Option(
    '--state <url>',
    'PostgreSQL database for jobs and their journals, such as postgres://user@host/starling; ' +
      'a file in the data folder otherwise',
  ).env('STARLING_STATE')
}

export function blobsOption(): Option {
  return new Option(
    '--blobs <url>',
    'bucket of an S3 store for data and versions, such as s3://bucket/starling; keys and address from ' +
      'AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. Or a folder that several ' +
      'coordinators reach, such as file:///mnt/starling; a folder in the data folder otherwise',
  ).env('STARLING_BLOBS')
}
