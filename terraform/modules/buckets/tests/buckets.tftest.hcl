mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
}

variables {
  name        = "millrace-test"
  kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/1"
}

run "each_bucket_is_versioned_encrypted_and_closed" {
  command = plan
  assert {
    condition = alltrue([for name in keys(aws_s3_bucket.this) :
      aws_s3_bucket_versioning.this[name].versioning_configuration[0].status == "Enabled"
      && aws_s3_bucket_public_access_block.this[name].block_public_policy
      && aws_s3_bucket_public_access_block.this[name].restrict_public_buckets
      && length(aws_s3_bucket_server_side_encryption_configuration.this[name].rule) == 1
    ])
    error_message = "a bucket lacks versioning, encryption or the block of public access"
  }
}

run "backups_are_encrypted_with_the_regions_key" {
  command = plan
  assert {
    condition = alltrue([for name in ["artifacts", "backups"] : alltrue([
      for rule in aws_s3_bucket_server_side_encryption_configuration.this[name].rule :
      rule.apply_server_side_encryption_by_default[0].kms_master_key_id == var.kms_key_arn
    ])])
    error_message = "programs and backups must be encrypted with the region's key"
  }
}

run "buckets_with_content_are_not_deleted" {
  command = plan
  assert {
    condition     = alltrue([for bucket in aws_s3_bucket.this : !bucket.force_destroy])
    error_message = "a destroy must not take the backups with it"
  }
}

run "no_backup_is_removed_by_its_age_alone" {
  command = plan
  assert {
    condition = alltrue([
      for rule in aws_s3_bucket_lifecycle_configuration.this["backups"].rule :
      alltrue([for it in rule.expiration : it.expired_object_delete_marker])
    ])
    error_message = "fdbbackup must remove old backups: a container has objects that are written once"
  }
}

run "nothing_of_a_deleted_object_stays_for_ever" {
  command = plan
  assert {
    condition = alltrue([for configuration in aws_s3_bucket_lifecycle_configuration.this :
      anytrue([for rule in configuration.rule : length(rule.noncurrent_version_expiration) == 1])
      && anytrue([for rule in configuration.rule : length(rule.expiration) == 1])
    ])
    error_message = "old versions or markers of deleted objects stay in a bucket: each hour fdbbackup deletes more"
  }
}
