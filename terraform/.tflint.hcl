plugin "terraform" {
  enabled = true
  preset  = "all"
}

# Modules are in this repository: their version is the commit.
rule "terraform_module_pinned_source" {
  enabled = true
}

# Short modules keep all their resources in main.tf, with variables.tf and outputs.tf beside it.
rule "terraform_standard_module_structure" {
  enabled = true
}
