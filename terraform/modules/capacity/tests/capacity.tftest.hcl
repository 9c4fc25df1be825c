variables {
  connections               = 20000
  messages_per_second       = 5000
  durable_writes_per_second = 1000
  cores                     = { gateway = 4, edge = 8, foundationdb = 4 }
}

run "a_small_load_needs_the_least_that_survives_a_loss" {
  command = plan
  assert {
    condition     = output.gateway_count == 2 && output.edge_count == 3 && output.foundationdb_count == 3
    error_message = "two gateways, three edges and three FoundationDB machines are the least"
  }
}

run "gateways_and_edges_take_all_connections_when_a_zone_is_lost" {
  command = plan
  variables {
    connections = 2000000
  }
  assert {
    condition     = (output.gateway_count - ceil(output.gateway_count / 3)) * 100000 >= 2000000
    error_message = "a gateway takes 100,000 connections, and a third of them may be lost: ${output.gateway_count}"
  }
  assert {
    condition     = (output.edge_count - ceil(output.edge_count / 3)) * 500000 >= 2000000
    error_message = "an edge machine takes 500,000 connections, and a third of them may be lost: ${output.edge_count}"
  }
  assert {
    condition     = output.gateway_count == 30 && output.edge_count == 6
    error_message = "no more than that is needed: ${output.gateway_count} gateways, ${output.edge_count} edges"
  }
}

run "larger_gateways_are_fewer" {
  command = plan
  variables {
    connections             = 2000000
    gateway_connections_max = 200000
  }
  assert {
    condition     = output.gateway_count == 15
    error_message = "a gateway takes 200,000 connections, and a third of them may be lost: ${output.gateway_count}"
  }
}

run "the_gateways_of_two_zones_hold_all_connections" {
  command = plan
  variables {
    connections = 2000000
  }
  assert {
    condition = (output.gateway_memory_gib * local.figures.memory_use_max * 1073741824
    >= 2000000 / (output.gateway_count * 2 / 3) * local.figures.gateway_bytes_per_connection)
    error_message = "without a zone, a gateway's connections must fit in its memory"
  }
}

run "production_is_not_below_the_model" {
  command = plan
  variables {
    connections               = 500000
    messages_per_second       = 200000
    durable_writes_per_second = 40000
  }
  assert {
    condition = alltrue([
      output.gateway_count >= local.figures.examples.production.gateway,
      output.edge_count >= local.figures.examples.production.edge,
      output.foundationdb_count >= local.figures.examples.production.store,
    ])
    error_message = "capacity.py computes more: ${jsonencode(local.figures.examples.production)}"
  }
}

run "a_reconnect_of_all_devices_decides_on_gateways" {
  command = plan
  variables {
    connections         = 100000
    connects_per_second = 16000
  }
  assert {
    condition     = output.gateway_count == 20
    error_message = "16,000 handshakes a second are 20 gateways of 4 cores, of which a third may be lost: ${output.gateway_count}"
  }
}

run "durable_writes_decide_on_the_database" {
  command = plan
  variables {
    durable_writes_per_second = 200000
  }
  assert {
    condition     = output.foundationdb_count == 12
    error_message = "three copies of 200,000 messages a second are 12 machines, of which a third may be lost: ${output.foundationdb_count}"
  }
}

run "cores_that_no_process_of_the_database_uses_do_not_count" {
  command = plan
  variables {
    durable_writes_per_second = 400000
    cores                     = { gateway = 4, edge = 8, foundationdb = 16 }
    foundationdb_processes    = 10
  }
  assert {
    condition     = output.foundationdb_count == 12
    error_message = "ten processes use ten of sixteen cores: three copies of 400,000 messages a second are 12 machines: ${output.foundationdb_count}"
  }
}

run "more_than_a_region_carries_is_refused" {
  command = plan
  variables {
    connections = 50000000
  }
  expect_failures = [var.connections]
}
