locals {
  console = "console.${var.domain}"
  records = {
    (var.domain)      = var.gateway
    "*.${var.domain}" = var.gateway # devices connect to BROKER.domain
    (local.console)   = var.control
  }
}

resource "aws_route53_record" "this" {
  for_each = local.records
  zone_id  = var.zone_id
  name     = each.key
  type     = "A"
  alias {
    name                   = each.value.dns_name
    zone_id                = each.value.zone_id
    evaluate_target_health = true
  }
}

# The devices' certificate is in a secret, because Envoy needs its key; this one is for the console's load balancer.
resource "aws_acm_certificate" "console" {
  domain_name       = local.console
  validation_method = "DNS"
  tags              = { Name = local.console }
  lifecycle { create_before_destroy = true }
}

resource "aws_route53_record" "validation" {
  for_each = { for option in aws_acm_certificate.console.domain_validation_options : option.domain_name => option }
  zone_id  = var.zone_id
  name     = each.value.resource_record_name
  type     = each.value.resource_record_type
  ttl      = 300
  records  = [each.value.resource_record_value]
}

resource "aws_acm_certificate_validation" "console" {
  certificate_arn         = aws_acm_certificate.console.arn
  validation_record_fqdns = [for record in aws_route53_record.validation : record.fqdn]
}
