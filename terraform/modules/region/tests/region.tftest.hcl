# The provider's schema without its services: values that only AWS knows are made up.
mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_ec2_instance_type" {
    defaults = { memory_size = 65536 }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
  mock_data "aws_default_tags" {
    defaults = { tags = {} }
  }
  # The user data names these, and a check compares it with the machines'.
  mock_resource "aws_s3_bucket" {
    override_during = plan
    defaults        = { id = "millrace-test-bucket", arn = "arn:aws:s3:::millrace-test-bucket" }
  }
  mock_resource "aws_ebs_volume" {
    override_during = plan
    defaults        = { id = "vol-0123456789abcdef0" }
  }
  mock_resource "aws_acm_certificate" {
    override_during = plan
    defaults = {
      arn = "arn:aws:acm:eu-central-1:123456789012:certificate/1"
      domain_validation_options = [{
        domain_name           = "console.mqtt.example.org"
        resource_record_name  = "_check.console.mqtt.example.org"
        resource_record_type  = "CNAME"
        resource_record_value = "_check.acm-validations.aws"
      }]
    }
  }
}

variables {
  name               = "millrace-test"
  domain             = "mqtt.example.org"
  zone_id            = "Z123"
  ami_id             = "ami-0123456789abcdef0"
  availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
  is_protected       = false
  load               = { connections = 500000, messages_per_second = 200000, durable_writes_per_second = 40000 }
  artifacts = {
    millrace             = { key = "millrace.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    foundationdb_clients = { key = "clients.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    foundationdb_server  = { key = "server.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    nats_server          = { key = "nats-server", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    envoy                = { key = "envoy", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    prometheus           = { key = "prometheus", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    node_exporter        = { key = "node_exporter", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
  }
}

run "three_zones_and_six_machines_survive_the_loss_of_a_zone" {
  command = plan
  variables {
    counts = { foundationdb = 6 }
  }
  assert {
    condition     = output.redundancy == "three_data_hall"
    error_message = "six machines in three zones keep a copy in each zone: ${output.redundancy}"
  }
  assert {
    condition     = length(regexall(":4500:tls", module.foundationdb.cluster_file)) == 5
    error_message = "a new cluster of six machines has five coordinators: ${module.foundationdb.cluster_file}"
  }
}

run "the_database_uses_the_cores_of_its_machines" {
  command = plan
  variables {
    machines = { foundationdb = { type = "m7i.4xlarge", cores = 16 } }
  }
  assert {
    condition = alltrue([for config in values(output.cloud_configs.foundationdb) : strcontains(config, "[fdbserver.4508]\\nclass = storage\\n") && (
      strcontains(config, "[fdbserver.4509]\\nclass = stateless\\n")
    )])
    error_message = "eight storage processes use eight of sixteen cores"
  }
  assert {
    condition     = contains(output.access, "edge -> foundationdb:4500-4509")
    error_message = "pods do not reach all processes: ${join(", ", output.access)}"
  }
}

run "only_load_balancers_take_connections_from_outside" {
  command = plan
  assert {
    condition     = alltrue([for rule in output.access : !startswith(rule, "devices") && !startswith(rule, "people")])
    error_message = "machines are reached from machines only"
  }
  assert {
    condition = toset(output.access) == toset([
      "gateway-balancer -> gateway:8883", "gateway-balancer -> gateway:8443", "gateway-balancer -> gateway:9902",
      "control-balancer -> control:8080",
      "gateway -> edge:1884", "gateway -> edge:8080",
      "edge -> foundationdb:4500-4503", "control -> foundationdb:4500-4503", "foundationdb -> foundationdb:4500-4503",
      "edge -> nats:4222", "control -> nats:4222", "nats -> nats:6222",
      "telemetry -> edge:8090", "telemetry -> control:8090", "telemetry -> gateway:9902",
      "telemetry -> nats:8222", "telemetry -> foundationdb:7777",
      "telemetry -> gateway:9100", "telemetry -> edge:9100", "telemetry -> control:9100", "telemetry -> foundationdb:9100",
      "telemetry -> nats:9100",
    ])
    error_message = "the list of who may connect to whom has changed: ${join(", ", output.access)}"
  }
}

run "a_collector_takes_what_the_pods_send" {
  command = plan
  variables {
    traces_to = "http://10.40.3.7:4318"
    artifacts = {
      millrace             = { key = "millrace.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      foundationdb_clients = { key = "clients.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      foundationdb_server  = { key = "server.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      nats_server          = { key = "nats-server", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      envoy                = { key = "envoy", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      prometheus           = { key = "prometheus", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      node_exporter        = { key = "node_exporter", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
      otelcol              = { key = "otelcol", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
    }
  }
  assert {
    condition = alltrue([
      for settings in [module.edge.settings, module.control.settings] : settings.otlp_endpoint == "http://10.40.0.190:4318" && settings.otlp_interval_s == 0
    ])
    error_message = "pods must send traces to the collector, and no metrics, which Prometheus reads"
  }
  assert {
    condition     = length(setintersection(output.access, ["edge -> telemetry:4318", "control -> telemetry:4318"])) == 2
    error_message = "pods do not reach the collector"
  }
  assert {
    condition     = contains(output.access_out, "telemetry -> 10.40.0.0/16:4318")
    error_message = "the collector must reach the store of traces: ${join(", ", output.access_out)}"
  }
  assert {
    condition = (
      strcontains(module.telemetry.collector["/etc/systemd/system/millrace-collector.service"], "OBSERVE_LISTEN=10.40.0.190 ") &&
      jsondecode(module.telemetry.collector["/etc/otelcol.yaml"]).processors == yamldecode(file("../../../dashboards/collector/config.yaml")).processors &&
      jsondecode(module.telemetry.collector["/etc/otelcol.yaml"]).exporters.otlp_http.endpoint == "http://10.40.3.7:4318" &&
      jsondecode(module.telemetry.collector["/etc/otelcol.yaml"]).service.pipelines.traces.exporters[0] == "otlp_http" &&
      strcontains(output.cloud_configs.telemetry, "\\\"key\\\":\\\"otelcol\\\"") && strcontains(output.cloud_configs.telemetry, "millrace-collector.service")
    )
    error_message = "the collector must run with the configuration of dashboards/"
  }
  assert {
    condition     = contains([for job in yamldecode(output.prometheus).scrape_configs : job.job_name], "collector")
    error_message = "TelemetryIncomplete does not see a collector that is gone"
  }
}

run "traces_need_a_collector" {
  command = plan
  variables {
    traces_to = "http://10.40.3.7:4318"
  }
  expect_failures = [var.traces_to]
}

run "tenants_and_their_console_find_the_gateway" {
  command = plan
  assert {
    condition     = module.control.settings.endpoint_domain == "mqtt.example.org" && module.control.settings.region == "millrace-test"
    error_message = "without endpoint_domain the API says that brokers are at 127.0.0.1"
  }
  assert {
    condition     = module.edge.settings.endpoint_domain == "mqtt.example.org" && module.edge.settings.region == "millrace-test"
    error_message = "edge and control plane must name the same region and domain"
  }
  assert {
    condition     = module.edge.settings.ws_origins == [module.control.settings.public_url]
    error_message = "the edge refuses WebSockets that pages of the console open"
  }
}

run "services_of_tenants_are_reached_as_the_settings_say" {
  command = plan
  variables {
    edge_settings    = { outgoing_http = true, outgoing_allow = ["10.20.0.0/16", "fd00:20::/32"] }
    control_settings = { outgoing_allow = "10.30.0.0/16, 10.31.0.7" }
  }
  assert {
    condition = toset(output.access_out) == toset([
      "edge -> internet:443", "control -> internet:443", "edge -> internet:80", "edge -> 10.20.0.0/16", "edge -> fd00:20::/32",
      "control -> 10.30.0.0/16", "control -> 10.31.0.7/32",
    ])
    error_message = "webhooks that the settings allow must leave the machines, and no others: ${join(", ", output.access_out)}"
  }
}

run "mail_and_secret_files_reach_the_control_plane" {
  command = plan
  variables {
    control_settings = { smtp_host = "smtp.example.org", smtp_tls = "tls", smtp_password_file = "/etc/millrace/secrets/smtp-password" }
    has_secret_key   = true
  }
  assert {
    condition     = toset(output.access_out) == toset(["edge -> internet:443", "control -> internet:443", "control -> internet:465"])
    error_message = "the control plane must reach the mail server, and nobody else may: ${join(", ", output.access_out)}"
  }
  assert {
    condition = (
      module.control.settings.secret_key_file == "/etc/millrace/secrets/secret-key" &&
      module.edge.settings.secret_key_file == module.control.settings.secret_key_file
    )
    error_message = "a server without the region's secret key does not start"
  }
  assert {
    condition = alltrue([
      for name in concat(keys(module.control.settings), keys(module.edge.settings)) :
      strcontains(file("../../../services/millrace/docs/settings.md"), "\n| `${name}` |")
    ])
    error_message = "millrace.toml has a setting that the program does not know"
  }
}

run "prometheus_evaluates_the_rules_and_notifies_alertmanager" {
  command = plan
  variables {
    alertmanager = { targets = ["10.0.3.7:9093"], cidr = "10.0.3.0/24" }
    runbooks_url = "https://git.example.org/runbooks/"
  }
  assert {
    condition = {
      for path, rules in module.telemetry.rules : path => replace(rules, "https://git.example.org/runbooks/", "runbooks/")
      if path != "/etc/prometheus/rules/machines.yaml"
      } == {
      for name in ["alerts.yaml", "objectives.yaml", "recording.yaml"] :
      "/etc/prometheus/rules/${name}" => replace(file("../../../dashboards/prometheus/rules/${name}"), "/(?m)^ *#.*\n/", "")
    } && strcontains(output.prometheus, "rule_files: [/etc/prometheus/rules/*.yaml]")
    error_message = "the telemetry machine must have every file of rules"
  }
  assert {
    condition = length(regexall("runbook_url: ", join("", values(module.telemetry.rules)))) > 30 && alltrue([
      for link in flatten(regexall("runbook_url: (\\S+)", join("", values(module.telemetry.rules)))) :
      can(regex("^https://git.example.org/runbooks/[a-z0-9-]+\\.md$", link))
    ])
    error_message = "the link of an alert does not open outside the repository"
  }
  # Targets with another job make alerts such as PodDown silent.
  assert {
    condition = length(regexall("up\\{job=\"\\w+\"\\} == 0\n", file("../../../dashboards/prometheus/rules/alerts.yaml"))) == 3 && alltrue([
      for job in distinct(flatten(regexall("up\\{job=\"(\\w+)\"\\} == 0\n", file("../../../dashboards/prometheus/rules/alerts.yaml")))) :
      strcontains(output.prometheus, "target_label: job, replacement: ${job} }") || strcontains(output.prometheus, "- job_name: ${job}\n")
    ])
    error_message = "no target has the job that a rule reads"
  }
  # A target that is looked up among the running machines would vanish with its machine.
  assert {
    condition = {
      for job in yamldecode(output.prometheus).scrape_configs : job.job_name => job.static_configs[0].targets if can(job.static_configs)
    } == { nats = ["127.0.0.1:7777"], foundationdb = ["10.40.0.10:7777"] }
    error_message = "nobody hears of a NATS server or a database that is down"
  }
  assert {
    condition     = strcontains(output.cloud_configs.telemetry, " --nats http://10.40.0.200:8222 --nats http://10.40.16.201:8222 --nats http://10.40.32.202:8222")
    error_message = "the telemetry machine must read every NATS server"
  }
  assert {
    condition = [for name in ["foundationdb-1", "foundationdb-2"] : strcontains(
      output.cloud_configs.foundationdb[name], "millrace-backup-expire.timer\\\",\\\"millrace-status.service"
    )] == [true, false]
    error_message = "exactly one machine shows the status of the cluster, or each number would count several times"
  }
  assert {
    condition     = yamldecode(output.prometheus).alerting.alertmanagers[0].static_configs[0].targets == ["10.0.3.7:9093"]
    error_message = "alerts do not reach Alertmanager"
  }
  assert {
    condition     = contains(output.access_out, "telemetry -> 10.0.3.0/24:9093")
    error_message = "Prometheus must reach Alertmanager: ${join(", ", output.access_out)}"
  }
}

run "prometheus_reads_the_host_of_every_machine" {
  command = plan
  assert {
    condition = toset([
      for job in yamldecode(output.prometheus).scrape_configs : job.ec2_sd_configs[0].filters[1].values[0]
      if try(job.relabel_configs[0].replacement, "") == "host" && try(job.ec2_sd_configs[0].port, 0) == 9100
    ]) == toset(["gateway", "edge", "control", "foundationdb", "nats", "telemetry"])
    error_message = "alerts on CPU, memory and clock are silent for a kind of machine"
  }
  assert {
    condition = alltrue([
      for config in concat(
        values(output.cloud_configs.nats), values(output.cloud_configs.foundationdb),
        [for role in ["gateway", "edge", "control", "telemetry"] : output.cloud_configs[role]],
      ) : strcontains(config, "/usr/local/bin/node_exporter --web.listen-address") && strcontains(config, "\\\"key\\\":\\\"node_exporter\\\"")
    ])
    error_message = "a machine does not start its node exporter"
  }
  # MachinesMissing compares the numbers with the targets of these roles.
  assert {
    condition = {
      for rule in yamldecode(module.telemetry.rules["/etc/prometheus/rules/machines.yaml"]).groups[0].rules : rule.labels.role => rule.expr
      if rule.record == "region_machines_wanted"
      } == merge({ for role, count in output.machines : role => "vector(${count})" }, { telemetry = "vector(1)" }) && toset([
        for job in yamldecode(output.prometheus).scrape_configs : job.relabel_configs[1].replacement
        if try(job.relabel_configs[0].replacement, "") == "host" && try(job.relabel_configs[1].target_label, "") == "role"
    ]) == setunion(keys(output.machines), ["telemetry"])
    error_message = "nobody hears of a machine that is gone for good"
  }
  assert {
    condition = strcontains(output.cloud_configs.edge, " --collector.textfile.directory=/var/lib/millrace-boot/metrics ") && (
      strcontains(file("../machine/boot/boot.py"), "METRICS = pathlib.Path(\"/var/lib/millrace-boot/metrics\")\n")
    )
    error_message = "nobody hears of a certificate between the machines that ends"
  }
}

run "the_user_data_of_a_telemetry_machine_with_everything_fits" {
  command = plan
  variables {
    artifacts    = merge(var.artifacts, { otelcol = var.artifacts.prometheus, everywhere = [var.artifacts.millrace] })
    traces_to    = "http://10.40.3.7:4318"
    alertmanager = { targets = ["10.0.3.7:9093", "10.0.3.8:9093"], cidr = "10.0.3.0/24" }
    runbooks_url = "https://git.operations.example.org/platform/messaging/millrace/blob/main/runbooks"
    edge_ports   = [{ gateway = 1884, http = 8080 }, { gateway = 1885, http = 8081 }, { gateway = 1886, http = 8082 }]
  }
  assert {
    condition     = strcontains(module.telemetry.cloud_config, "millrace-collector.service") && length(base64gzip(module.telemetry.cloud_config)) <= 21300
    error_message = "the user data has less than 400 bytes left for the next alert: ${length(base64gzip(module.telemetry.cloud_config))} of 21848 characters"
  }
}

run "a_type_whose_disks_have_no_nvme_names_is_refused" {
  command = plan
  variables {
    machines = { foundationdb = { type = "m4.xlarge", cores = 4 } }
  }
  expect_failures = [var.machines]
}

run "a_type_whose_telemetry_disk_has_no_nvme_name_is_refused" {
  command = plan
  variables {
    machines = { telemetry = { type = "t2.small", cores = 1 } }
  }
  expect_failures = [var.machines]
}

run "types_with_nvme_names_are_taken" {
  command = plan
  variables {
    machines       = { foundationdb = { type = "i3en.xlarge", cores = 4 }, telemetry = { type = "m5.large", cores = 2 }, gateway = { type = "t2.medium", cores = 2 } }
    has_secret_key = true
  }
  assert {
    condition     = output.has_secret_key
    error_message = "terraform/secrets.sh does not see that the region needs a secret key"
  }
}

run "an_alertmanager_without_runbooks_is_refused" {
  command = plan
  variables {
    alertmanager = { targets = ["10.0.3.7:9093"], cidr = "10.0.3.0/24" }
  }
  expect_failures = [var.alertmanager]
}

run "runbooks_at_an_address_with_a_token_are_refused" {
  command = plan
  variables {
    runbooks_url = "https://TOKEN@git.example.org/runbooks"
  }
  expect_failures = [var.runbooks_url]
}

run "runbooks_at_a_relative_path_are_refused" {
  command = plan
  variables {
    runbooks_url = "millrace/runbooks"
  }
  expect_failures = [var.runbooks_url]
}

run "an_alertmanager_without_a_port_is_refused" {
  command = plan
  variables {
    runbooks_url = "https://git.example.org/runbooks"
    alertmanager = { targets = ["alerts.example.org"], cidr = "10.0.3.0/24" }
  }
  expect_failures = [var.alertmanager]
}

run "an_alertmanager_in_an_ipv6_network_is_refused" {
  command = plan
  variables {
    runbooks_url = "https://git.example.org/runbooks"
    alertmanager = { targets = ["alerts.example.org:9093"], cidr = "fd00:10::/64" }
  }
  expect_failures = [var.alertmanager]
}

run "an_alertmanager_at_an_address_within_its_network_is_refused" {
  command = plan
  variables {
    runbooks_url = "https://git.example.org/runbooks"
    alertmanager = { targets = ["10.0.3.7:9093"], cidr = "10.0.3.7/24" }
  }
  expect_failures = [var.alertmanager]
}

run "people_from_an_ipv6_network_are_refused" {
  command = plan
  variables {
    allowed_cidrs = { people = ["203.0.113.0/24", "2001:db8::/32"] }
  }
  expect_failures = [var.allowed_cidrs]
}

run "systemd_waits_for_the_drain_that_the_settings_say" {
  command = plan
  variables {
    edge_settings = { drain_max_s = 100, shutdown_grace_s = 20 }
  }
  assert {
    condition     = output.stop_s.edge == 140
    error_message = "systemd must not kill a pod that drains for 100 s and writes for 20 s"
  }
  assert {
    condition     = output.stop_s.control == 50
    error_message = "a control machine stops with the program's own 20 s and 10 s"
  }
}

run "a_drain_longer_than_ec2_waits_is_refused" {
  command = plan
  variables {
    edge_settings    = { drain_max_s = 600 }
    control_settings = { drain_max_s = 100, shutdown_grace_s = 60 }
  }
  expect_failures = [var.edge_settings, var.control_settings]
}

run "a_gateway_that_drains_keeps_its_devices" {
  command = plan
  assert {
    condition = alltrue([
      for state in values(module.gateway.drain) : !state.enable_unhealthy_connection_termination && (
        tonumber(state.unhealthy_draining_interval) >= sum([for s in regexall("GATEWAY_(?:NOTICE|DRAIN)_S=\\\\\"(\\d+)", module.gateway.cloud_config) : tonumber(s[0])])
      )
    ])
    error_message = "the load balancer cuts all devices of a gateway at once as soon as it says that it is not ready"
  }
}

run "a_looked_up_image_is_refused" {
  command = plan
  variables {
    ami_id = "latest"
  }
  expect_failures = [var.ami_id]
}

run "a_long_name_is_refused" {
  command = plan
  variables {
    name = "millrace-production-europe"
  }
  expect_failures = [var.name]
}

run "a_machine_without_its_disks_does_not_write_to_the_root_disk" {
  command = plan
  assert {
    condition     = length(module.foundationdb.disks) > 0 && strcontains(file("../foundationdb/files/foundationdb.conf"), "RequiresMountsFor=/var/lib/foundationdb/log /var/lib/foundationdb/storage\n")
    error_message = "FoundationDB would begin an empty store"
  }
  assert {
    condition     = output.prometheus != "" && strcontains(file("../telemetry/files/prometheus.service.tftpl"), "RequiresMountsFor=/var/lib/prometheus\n")
    error_message = "Prometheus would fill the root disk"
  }
  assert {
    condition     = strcontains(module.telemetry.cloud_config, "--storage.tsdb.retention.size 80GB ")
    error_message = "Prometheus would fill its own disk of 100 GiB, and stop"
  }
}

run "a_protected_region_whose_alerts_reach_nobody_is_named" {
  command = plan
  variables {
    is_protected = true
  }
  expect_failures = [check.somebody_hears_of_alerts]
}

run "a_protected_database_leaves_its_disks_as_snapshots" {
  command = plan
  variables {
    is_protected = true
    alertmanager = { targets = ["10.0.3.7:9093"], cidr = "10.0.3.0/24" }
    runbooks_url = "https://git.example.org/runbooks"
  }
  assert {
    condition     = alltrue([for disk in module.foundationdb.disks : disk.final_snapshot && disk.encrypted])
    error_message = "terraform destroy deletes the disks of the database"
  }
}

run "the_gateways_script_reads_each_of_its_variables" {
  command = plan
  assert {
    condition = length(setsubtract(
      flatten(regexall("(?m)^(GATEWAY_[A-Z_]+)=", one([
        for file in jsondecode(trimprefix(module.gateway.cloud_config, "#cloud-config\n")).write_files :
        file.content if file.path == "/etc/millrace/gateway.env"
      ]))),
      flatten(regexall("(?m)^: \"[$]{(GATEWAY_[A-Z_]+):=", file("../../../gateway/gateway.sh"))),
    )) == 0
    error_message = "the gateway's machines set a variable that gateway.sh does not read"
  }
}

run "a_gateway_uses_the_port_of_a_closed_connection_again" {
  command = plan
  assert {
    condition = length(setsubtract(
      ["net.ipv4.ip_local_port_range = 10240 65000", "net.ipv4.tcp_tw_reuse = 1"],
      split("\n", one([
        for file in jsondecode(trimprefix(module.gateway.cloud_config, "#cloud-config\n")).write_files :
        file.content if file.path == "/etc/sysctl.d/60-millrace.conf"
      ])),
    )) == 0
    error_message = "clients that connect and close leave a gateway without ports towards its pods"
  }
}

run "nats_moves_its_clients_before_systemd_kills_it" {
  command = plan
  assert {
    condition = length(module.nats.urls) > 0 && (
      tonumber(regex("lame_duck_duration: \"(\\d+)s\"", file("../nats/files/nats.conf.tftpl"))[0]) +
      tonumber(regex("lame_duck_grace_period: \"(\\d+)s\"", file("../nats/files/nats.conf.tftpl"))[0])
      < tonumber(regex("TimeoutStopSec=(\\d+)", file("../nats/files/nats.service"))[0])
    )
    error_message = "nats-server is killed while its clients move"
  }
}

run "the_limits_that_runbooks_name_reach_the_machines" {
  command = plan
  variables {
    load         = { connections = 1000000, messages_per_second = 50000, durable_writes_per_second = 40000 }
    gateway      = { connections_max = 150000, heap_gib = 6, drain_s = 60 }
    foundationdb = { redundancy = "triple", storage_processes = 3, memory_gib = 6 }
    log_disk     = { size_gib = 80 }
    storage_disk = { size_gib = 900, type = "gp3", iops = 6000, throughput = 500 }
    telemetry    = { disk_gib = 200, retention = "14d" }
  }
  assert {
    condition = (
      strcontains(module.gateway.cloud_config, "GATEWAY_CONNECTIONS_MAX=\\\"150000\\\"") && strcontains(module.gateway.cloud_config, "GATEWAY_HEAP_BYTES_MAX=\\\"6442450944\\\"") &&
      alltrue([for state in values(module.gateway.drain) : tonumber(state.unhealthy_draining_interval) == 90])
    )
    error_message = "a gateway keeps other limits than gateway says"
  }
  assert {
    condition     = output.machines.gateway == 11
    error_message = "eleven gateways of 150,000 devices carry a million without a zone: ${output.machines.gateway}"
  }
  assert {
    condition = output.redundancy == "triple" && alltrue([
      for config in values(output.cloud_configs.foundationdb) : strcontains(config, "[fdbserver.4504]\\nclass = stateless\\n") && strcontains(config, "\\nmemory = 6GiB\\n")
    ])
    error_message = "the machines of FoundationDB run with other values than foundationdb says"
  }
  assert {
    condition = alltrue([
      for name, disk in module.foundationdb.disks : endswith(name, "-log") ? disk.size == 80 : disk.size == 900 && disk.iops == 6000 && disk.throughput == 500
    ])
    error_message = "the disks of FoundationDB are others than log_disk and storage_disk say"
  }
  assert {
    condition     = strcontains(module.telemetry.cloud_config, "--storage.tsdb.retention.time 14d ") && strcontains(module.telemetry.cloud_config, "--storage.tsdb.retention.size 160GB ")
    error_message = "Prometheus keeps its measurements for another time than telemetry says"
  }
}

run "limits_that_cannot_work_are_refused" {
  command = plan
  variables {
    gateway      = { connections_max = 200000 }
    foundationdb = { redundancy = "single" }
    storage_disk = { size_gib = 50 }
    telemetry    = { disk_gib = 0 }
  }
  expect_failures = [var.gateway, var.foundationdb, var.storage_disk, var.telemetry]
}

run "a_count_of_no_machine_is_refused" {
  command = plan
  variables {
    counts = { edge = 0 }
  }
  expect_failures = [var.counts]
}

run "a_machine_without_cores_is_refused" {
  command = plan
  variables {
    machines = { edge = { type = "c7i.large", cores = 0 } }
  }
  expect_failures = [var.machines]
}

run "a_machine_of_another_architecture_than_the_image_is_refused" {
  command = plan
  variables {
    machines = { edge = { type = "c7g.large", cores = 2 } }
  }
  expect_failures = [var.machines]
}

run "ports_that_metrics_also_have_are_refused" {
  command = plan
  variables {
    edge_ports = [{ gateway = 8090, http = 8080 }]
  }
  expect_failures = [var.edge_ports]
}

run "an_edge_without_ports_is_refused" {
  command = plan
  variables {
    edge_ports = []
  }
  expect_failures = [var.edge_ports]
}

run "the_name_of_a_zone_as_its_id_is_refused" {
  command = plan
  variables {
    zone_id = "example.org"
  }
  expect_failures = [var.zone_id]
}

run "a_setting_that_the_program_does_not_know_is_refused" {
  command = plan
  variables {
    edge_settings = { connections_maximum = 1000 }
  }
  expect_failures = [var.edge_settings]
}

run "an_address_with_a_password_among_the_settings_is_refused" {
  command = plan
  variables {
    edge_settings    = { nats = ["tls://pods:word@10.40.0.200:4222"] }
    control_settings = { otlp_endpoint = "https://key:word@collector.example.org" }
  }
  expect_failures = [var.edge_settings, var.control_settings]
}

run "an_address_with_a_token_among_the_settings_is_refused" {
  command = plan
  variables {
    edge_settings    = { nats = ["tls://10.40.0.200:4222", "nats://TOKEN@10.40.0.201:4222"] }
    control_settings = { otlp_endpoint = "https://key@collector.example.org" }
  }
  expect_failures = [var.edge_settings, var.control_settings]
}

run "an_address_with_a_password_and_without_a_scheme_is_refused" {
  command = plan
  variables {
    edge_settings    = { nats = "pods:word@10.40.0.200:4222" }
    control_settings = { nats = ["pods:word@10.40.0.200:4222"] }
  }
  expect_failures = [var.edge_settings, var.control_settings]
}

run "an_address_with_a_password_that_has_a_slash_is_refused" {
  command = plan
  variables {
    edge_settings    = { otlp_endpoint = "https://user:wo/rd@collector.example.org:4318" }
    control_settings = { otlp_endpoint = "https://user:wo\"?rd@collector.example.org:4318" }
  }
  expect_failures = [var.edge_settings, var.control_settings]
}

run "an_encoded_at_sign_in_a_path_is_no_password" {
  command = plan
  variables {
    edge_settings    = { otlp_endpoint = "https://collector.example.org:4318/of/ops%40example.org", smtp_from = "Millrace <ops@example.org>" }
    control_settings = { oidc_issuer = "https://login.example.org", smtp_from = "ops@example.org" }
  }
}

run "a_disk_slower_than_aws_makes_them_is_refused" {
  command = plan
  variables {
    log_disk = { type = "gp3", iops = 100 }
  }
  expect_failures = [var.log_disk]
}

run "a_key_with_a_slash_before_it_is_refused" {
  command = plan
  variables {
    artifacts = merge(var.artifacts, { everywhere = [{ key = "/agent.deb", sha256 = sha256("agent") }] })
  }
  expect_failures = [var.artifacts]
}

run "a_backup_of_no_day_is_refused" {
  command = plan
  variables {
    backup_days = 0
  }
  expect_failures = [var.backup_days]
}

run "a_backup_that_ends_over_a_holiday_is_refused" {
  command = plan
  variables {
    backup_days = 3
  }
  expect_failures = [var.backup_days]
}
