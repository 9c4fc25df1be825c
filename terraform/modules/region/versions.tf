terraform {
  required_version = ">= 1.9"
  required_providers {
    # Named for the modules below, which tests give another provider.
    # tflint-ignore: terraform_unused_required_providers
    aws = { source = "hashicorp/aws", version = "~> 5.100" }
  }
}
