output "regions" {
  value = {
    for name, region in { eu = module.eu, us = module.us } :
    name => { for key, value in region : key => value if key != "cloud_configs" }
  }
  description = "Values that terraform/artifacts.sh, terraform/secrets.sh and people need."
}
