output "vpc_id" {
  value       = aws_vpc.this.id
  description = "The network."
}

output "cidr" {
  value       = var.cidr
  description = "Addresses of the network."
}

output "public_subnet_ids" {
  value       = [for zone in var.availability_zones : aws_subnet.public[zone].id]
  description = "Subnets of the load balancers, one a zone."
}

output "private_subnet_ids" {
  value       = [for zone in var.availability_zones : aws_subnet.private[zone].id]
  description = "Subnets of the machines, one a zone."
  # Before a machine is made that could take one of the addresses.
  depends_on = [aws_ec2_subnet_cidr_reservation.fixed]
}

# cidr is computed as that of aws_subnet.private, whose own is unknown before an apply.
output "private_subnets" {
  value = [for zone, index in local.zones : {
    id   = aws_subnet.private[zone].id
    zone = zone
    cidr = cidrsubnet(var.cidr, 4, index)
  }]
  description = "The same with zone and addresses, which are known before anything is made."
  precondition {
    condition     = jsonencode(terraform_data.layout.input) == jsonencode(local.layout)
    error_message = "cidr and availability_zones stay as they were when the network was made: ${terraform_data.layout.input.cidr} and ${join(", ", terraform_data.layout.input.zones)}, in this order. Others would replace the machines of FoundationDB and NATS, with the disks of the database, all at once. Build another region instead."
  }
}

output "s3_prefix_list_id" {
  value       = aws_vpc_endpoint.s3.prefix_list_id
  description = "Addresses of S3, for security groups."
}

output "has_way_out" {
  value       = var.nat_gateways != "none"
  description = "Whether machines can reach the internet."
}
