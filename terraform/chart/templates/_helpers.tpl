{{- define "millrace.name" -}}
{{- if contains "millrace" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-millrace" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "millrace.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Labels of everything: (list $ "edge") */}}
{{- define "millrace.labels" -}}
{{- $root := index . 0 -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* Labels that never change: (list $ "edge") */}}
{{- define "millrace.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Never root; volumes belong to the group of the program. */}}
{{- define "millrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "millrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/*
/livez answers 503 when an event loop has not turned for 5 s, and 200 during a drain. The admin port has connections of its own, so a
crowd at the public port restarts no pod. 30 s, as in the systemd unit.
*/}}
{{- define "millrace.liveness" -}}
httpGet: { path: /livez, port: admin }
periodSeconds: 10
timeoutSeconds: 5
failureThreshold: 3
{{- end }}

{{/*
Pods of one kind on different nodes and zones: (list $ "edge"). With a third item, the label of a revision, only pods of the same
revision count: a Deployment's new pods come beside the old ones, and would stand on one node when these have gone.
*/}}
{{- define "millrace.spread" -}}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  nodeTaintsPolicy: Honor
  labelSelector: { matchLabels: {{ include "millrace.selector" . | fromYaml | toJson }} }
  {{- with slice . 2 }}
  matchLabelKeys: {{ toJson . }}
  {{- end }}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: DoNotSchedule
  # By default a node whose taints keep these pods away, such as one of the control plane, counts as a node without pods.
  nodeTaintsPolicy: Honor
  labelSelector: { matchLabels: {{ include "millrace.selector" . | fromYaml | toJson }} }
  {{- with slice . 2 }}
  matchLabelKeys: {{ toJson . }}
  {{- end }}
{{- end }}

{{- define "millrace.natsUrls" -}}
{{- if .Values.nats.enabled -}}
{{- $name := include "millrace.name" . -}}
{{- $urls := list -}}
{{- range $number := until (int .Values.nats.replicas) -}}
{{- $urls = append $urls (printf "tls://%s-nats-%d.%s-nats.%s.svc:4222" $name $number $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $urls -}}
{{- else -}}
{{- include "millrace.public" (list "nats.urls" (required "nats.urls is empty: name the servers, or set nats.enabled" (join "," .Values.nats.urls))) -}}
{{- end -}}
{{- end }}

{{/*
The text of a value, (list NAME TEXT), which everybody who lists pods or config maps reads. Each at sign behind a scheme is refused, because a
password may have a slash in it.
*/}}
{{- define "millrace.public" -}}
{{- $name := index . 0 -}}
{{- $text := index . 1 -}}
{{- if or (regexMatch "://\\S*@" $text) (and (hasPrefix "nats" $name) (contains "@" $text)) -}}
{{- fail (printf "%s has an address with a user or a password, which everybody who lists pods would see. The password of NATS is in the secret of natsPassword; a collector takes none. An at sign of a path is written %%40" $name) -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{/* Ports of nats.urls, whose elements are URLs or HOST:PORT; 4222 without a port. */}}
{{- define "millrace.natsPorts" -}}
{{- $ports := list -}}
{{- range splitList "," (join "," .Values.nats.urls) }}{{ $ports = append $ports (regexFind ":[0-9]+$" (trim . | trimSuffix "/") | trimPrefix ":" | default "4222") }}{{ end -}}
{{- uniq $ports | join "," -}}
{{- end }}

{{/* Peers of a rule of a network policy, (list VALUE LIST): Kubernetes reads a rule without peers as a rule for every address. */}}
{{- define "millrace.destinations" -}}
{{- if not (index . 1) }}{{ fail (printf "%s is empty, and a network policy without peers is open to every address: list them" (index . 0)) }}{{ end -}}
{{ toJson (index . 1) }}
{{- end }}

{{/* Networks as peers, (list VALUE CIDRS EXCEPT); EXCEPT has what is left out of a network. */}}
{{- define "millrace.networks" -}}
{{- $except := dict -}}
{{- if gt (len .) 2 }}{{ $except = index . 2 }}{{ end -}}
{{- if include "millrace.destinations" . }}{{ end -}}
{{- range index . 1 }}
- ipBlock: { cidr: {{ . | quote }}{{ with get $except . }}, except: {{ toJson . }}{{ end }} }
{{- end }}
{{- end }}

{{/* The rule of a network policy for those that connect to FoundationDB. */}}
{{- define "millrace.foundationdb" -}}
{{- if eq .Values.foundationdb.mode "external" -}}
to: {{- include "millrace.networks" (list "foundationdb.external.cidrs" .Values.foundationdb.external.cidrs) | nindent 0 }}
ports: [ { port: {{ .Values.foundationdb.external.ports.first }}, endPort: {{ .Values.foundationdb.external.ports.last }} } ]
{{- else -}}
to: [ { podSelector: { matchLabels: { foundationdb.org/fdb-cluster-name: {{ include "millrace.name" . }}-store } } } ]
ports: [ { port: 4500, endPort: 4510 } ]
{{- end }}
{{- end }}

{{/* The config map with fdb.cluster. */}}
{{- define "millrace.clusterFileMap" -}}
{{- if eq .Values.foundationdb.mode "operator" -}}
{{ include "millrace.name" . }}-store-config
{{- else -}}
{{ include "millrace.name" . }}-cluster-file
{{- end -}}
{{- end }}

{{/* Key of fdb.cluster in that map. */}}
{{- define "millrace.clusterFileKey" -}}
{{- if eq .Values.foundationdb.mode "operator" -}}cluster-file{{- else -}}fdb.cluster{{- end -}}
{{- end }}

{{/* Settings of every pod that uses the store, as environment variables. */}}
{{- define "millrace.storeSettings" -}}
- { name: MILLRACE_STORE, value: foundationdb }
- { name: MILLRACE_FDB_CLUSTER_FILE, value: /var/lib/millrace/fdb.cluster }
- { name: MILLRACE_FDB_TLS_CERT, value: /etc/millrace/internal/tls.crt }
- { name: MILLRACE_FDB_TLS_KEY, value: /etc/millrace/internal/tls.key }
- { name: MILLRACE_FDB_TLS_CA, value: /etc/millrace/internal/ca.crt }
{{- with .Values.foundationdb.verifyPeers }}
- { name: MILLRACE_FDB_TLS_VERIFY, value: {{ include "millrace.peers" (list "foundationdb.verifyPeers" .) | quote }} }
{{- end }}
- { name: MILLRACE_NATS, value: {{ include "millrace.natsUrls" . | quote }} }
- { name: MILLRACE_NATS_REGION, value: {{ include "millrace.name" . }} }
- { name: MILLRACE_NATS_USER, value: pods }
- { name: MILLRACE_NATS_PASSWORD_FILE, value: /etc/millrace/nats/nats-password }
- { name: MILLRACE_NATS_TLS_CA, value: /etc/millrace/internal/ca.crt }
- { name: MILLRACE_NATS_TLS_CERT, value: /etc/millrace/internal/tls.crt }
- { name: MILLRACE_NATS_TLS_KEY, value: /etc/millrace/internal/tls.key }
- { name: MILLRACE_REGION, value: {{ include "millrace.name" . }} }
- { name: MILLRACE_ENDPOINT_DOMAIN, value: {{ .Values.domain | quote }} }
- { name: MILLRACE_OPERATOR_TOKEN_FILE, value: /etc/millrace/operator/operator-token }
{{- if (.Values.secretKey).secretName }}
- { name: MILLRACE_SECRET_KEY_FILE, value: /etc/millrace/secret-key/secret-key }
{{- end }}
- { name: MILLRACE_LOG_FORMAT, value: json }
- name: MILLRACE_POD
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
{{- with include "millrace.otlpEndpoint" . }}
{{- $_ := include "millrace.otlpPort" $ }}
- { name: MILLRACE_OTLP_ENDPOINT, value: {{ . | quote }} }
{{- if or $.Values.telemetry.serviceMonitors ($.Values.telemetry.collector).enabled }}
- { name: MILLRACE_OTLP_INTERVAL_S, value: "0" }
{{- end }}
{{- end }}
{{- end }}

{{/* The collector that takes traces and logs: the chart's own, or another. */}}
{{- define "millrace.otlpEndpoint" -}}
{{- if (.Values.telemetry.collector).enabled -}}
{{- if .Values.telemetry.otlpEndpoint }}{{ fail "telemetry.otlpEndpoint and telemetry.collector.enabled: pods send to one collector; telemetry.collector.exportTo passes traces and logs on" }}{{ end -}}
http://{{ include "millrace.name" . }}-collector:4318
{{- else -}}
{{- include "millrace.public" (list "telemetry.otlpEndpoint" .Values.telemetry.otlpEndpoint) -}}
{{- end -}}
{{- end }}

{{/* Port of the collector. */}}
{{- define "millrace.otlpPort" -}}
{{- $url := urlParse (include "millrace.otlpEndpoint" .) -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- if eq $port "4317" }}{{ fail "telemetry.otlpEndpoint: 4317 is the port of OTLP/gRPC; the server speaks OTLP/HTTP, whose port is 4318" }}{{ end -}}
{{- $port | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end }}

{{/*
The environment of a kind of pods, (list $ "edge" OWN): OWN, the variables that the chart sets, then edge.settings or
control.settings, a map of names as in millrace.toml. A variable of OWN is refused there, because it would stand twice.
*/}}
{{- define "millrace.environment" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $own := index . 2 -}}
{{- $from := dict "drain_max_s" "drainSeconds, which the pod's grace period follows"
    "shutdown_grace_s" "graceSeconds, which the pod's grace period follows" "connections_max" "edge.connectionsPerPod"
    "region" "the name of the release" "nats_region" "the name of the release" "nats" "nats.urls"
    "endpoint_domain" "domain" "public_url" "domain" "server_reference" "domain"
    "http_proxies" "control.proxies" "gateway_from" "edge.gatewayFrom" "ws_origins" "edge.wsOrigins" "otlp_endpoint" "telemetry.otlpEndpoint"
    "fdb_tls_verify" "foundationdb.verifyPeers" "secret_key_file" "secretKey.secretName" "operator_token_file" "operatorToken.secretName" -}}
{{- $taken := regexFindAll "MILLRACE_[A-Z0-9_]+" $own -1 | uniq -}}
{{- $own }}
{{- range $name, $value := (index $root.Values $kind).settings }}
{{- if has (printf "MILLRACE_%s" (upper $name)) $taken }}
{{- fail (printf "%s.settings.%s: the chart sets it, from %s" $kind $name (get $from $name | default "its own templates")) }}
{{- end }}
- { name: MILLRACE_{{ upper $name }}, value: {{ include "millrace.public" (list (printf "%s.settings.%s" $kind $name) (include "millrace.setting" (list $name $value))) | quote }} }
{{- end }}
{{- end }}

{{/* The text of a setting, (list NAME VALUE). A bare off is false in YAML, and a number is a float. */}}
{{- define "millrace.setting" -}}
{{- $name := index . 0 -}}
{{- $value := index . 1 -}}
{{- if kindIs "slice" $value -}}
{{- join "," $value -}}
{{- else if and (kindIs "bool" $value) (or (hasSuffix "_listen" $name) (has $name (list "data_dir" "log_level" "smtp_tls"))) -}}
{{- if $value }}{{ fail (printf "settings.%s: true is no value of this setting" $name) }}{{ end -}}
off
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- int64 $value -}}
{{- else -}}
{{- $value -}}
{{- end -}}
{{- end }}

{{- define "millrace.storeMounts" -}}
- { name: internal, mountPath: /etc/millrace/internal, readOnly: true }
- { name: nats, mountPath: /etc/millrace/nats, readOnly: true }
- { name: operator, mountPath: /etc/millrace/operator, readOnly: true }
{{- if (.Values.secretKey).secretName }}
- { name: secret-key, mountPath: /etc/millrace/secret-key, readOnly: true }
{{- end }}
- { name: state, mountPath: /var/lib/millrace }
{{- end }}

{{/* Port of the mail server, with the program's own defaults; empty without one. */}}
{{- define "millrace.smtpPort" -}}
{{- $settings := .Values.control.settings -}}
{{- if $settings.smtp_host -}}
{{- $tls := "starttls" -}}
{{- if hasKey $settings "smtp_tls" }}{{ $tls = include "millrace.setting" (list "smtp_tls" $settings.smtp_tls) | default $tls }}{{ end -}}
{{- $settings.smtp_port | default (get (dict "starttls" 587 "tls" 465 "off" 25) $tls) | int -}}
{{- end -}}
{{- end }}

{{/*
A secret's volume with these keys, (list NAME KEY...), for pods with an fsGroup. Other keys of the secret, such as the private key of an
authority, reach no pod. A pod does not start while a key is missing, and its events name the key.
*/}}
{{- define "millrace.secret" -}}
{{- $items := list -}}
{{- range rest . }}{{ $items = append $items (dict "key" . "path" .) }}{{ end -}}
{ secretName: {{ first . }}, items: {{ toJson $items }}, defaultMode: 0440 }
{{- end }}

{{- define "millrace.storeVolumes" -}}
- name: internal
  secret: {{ include "millrace.secret" (list .Values.internalTls.secretName "ca.crt" "tls.crt" "tls.key") }}
- name: nats
  secret: {{ include "millrace.secret" (list .Values.natsPassword.secretName "nats-password") }}
- name: operator
  secret: {{ include "millrace.secret" (list .Values.operatorToken.secretName "operator-token") }}
{{- with (.Values.secretKey).secretName }}
- name: secret-key
  secret: {{ include "millrace.secret" (list . "secret-key") }}
{{- end }}
- name: cluster-file
  configMap:
    name: {{ include "millrace.clusterFileMap" . }}
    items: [ { key: {{ include "millrace.clusterFileKey" . }}, path: fdb.cluster } ]
- name: state
  emptyDir: { sizeLimit: 64Mi }
{{- end }}

{{- define "millrace.clusterFileInit" -}}
- name: cluster-file
  image: {{ .Values.initImage }}
  command: [cp, /cluster-file/fdb.cluster, /var/lib/millrace/fdb.cluster]
  securityContext: {{- include "millrace.containerSecurity" . | nindent 4 }}
  resources:
    requests: { cpu: 10m, memory: 16Mi }
    limits: { memory: 16Mi }
  volumeMounts:
  - { name: cluster-file, mountPath: /cluster-file, readOnly: true }
  - { name: state, mountPath: /var/lib/millrace }
{{- end }}

{{/* Where the backup goes. The secret of an account may have a slash in it. */}}
{{- define "millrace.backupUrl" -}}
{{- $url := .Values.foundationdb.backup.url -}}
{{- if regexMatch "^blobstore://[^@]*:[^@]*@" $url -}}
{{- fail "foundationdb.backup.url has a secret in it, which everybody who lists pods would see: put it into blob-credentials.json of foundationdb.backup.secretName" -}}
{{- end -}}
{{- if not (regexMatch "^blobstore://[^/]+/[^/?]+\\?bucket=" $url) -}}
{{- fail (printf "foundationdb.backup.url is %q: fdbbackup takes blobstore://KEY@HOST/NAME?bucket=BUCKET" $url) -}}
{{- end -}}
{{- $url -}}
{{- end }}

{{/* Port of the object storage that takes the backup. */}}
{{- define "millrace.backupPort" -}}
{{- $url := urlParse (include "millrace.backupUrl" .) -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "80" "443" (eq (include "millrace.backupIsPlain" .) "true")) -}}
{{- end }}

{{/*
FoundationDB's rules for certificates, (list NAME RULES), separated by "|"; a peer must meet one. A rule without a condition on the
subject takes every certificate of the authorities, and Check.Valid=0 in one rule turns off all of them.
*/}}
{{- define "millrace.peers" -}}
{{- $name := index . 0 -}}
{{- range $rule := splitList "|" (index . 1) -}}
{{- if regexMatch "Check\\.[A-Za-z]+=0" $rule }}{{ fail (printf "%s: %q turns off the verification of certificates" $name $rule) }}{{ end -}}
{{- if not (regexMatch "(^|,)((S|Subject)\\.)?(CN|O|OU|UID|DC|subjectAltName)[<>]?=." $rule) -}}
{{- fail (printf "%s: the rule %q takes every certificate of the authorities; add a condition on the subject, such as S.CN=foundationdb" $name $rule) -}}
{{- end -}}
{{- end -}}
{{- index . 1 -}}
{{- end }}

{{/* Whether the backup reaches the object storage without TLS. */}}
{{- define "millrace.backupIsPlain" -}}
{{- if regexMatch "(^|&)(sc|secure_connection)=0(&|$)" (urlParse (include "millrace.backupUrl" .)).query }}true{{ end -}}
{{- end }}

{{/*
Rules of the backup's programs, which verify cluster and object storage by one file of authorities. The storage's rule follows from
the URL: its certificate must have the host's name. The cluster's names are in secrets, which a chart cannot read.
*/}}
{{- define "millrace.backupPeers" -}}
{{- $foundationdb := .Values.foundationdb -}}
{{- $rules := list -}}
{{- if $foundationdb.backup.verifyPeers -}}
{{- $rules = list $foundationdb.backup.verifyPeers -}}
{{- else -}}
{{- if $foundationdb.verifyPeers -}}
{{- $rules = append $rules $foundationdb.verifyPeers -}}
{{- else if or (eq $foundationdb.mode "operator") (contains ":tls" $foundationdb.external.clusterFile) -}}
{{- fail "foundationdb.verifyPeers is empty: the backup's programs also trust the authorities of the object storage, so name the cluster's certificates, such as Check.Valid=1,R.CN=region,S.CN=foundationdb for Terraform's cluster" -}}
{{- end -}}
{{- if not (include "millrace.backupIsPlain" .) -}}
{{- $host := regexReplaceAll ":[0-9]+$" (urlParse (include "millrace.backupUrl" .)).host "" -}}
{{- if not (regexMatch "^[A-Za-z0-9.-]*[A-Za-z][A-Za-z0-9.-]*$" $host) -}}
{{- fail (printf "foundationdb.backup.verifyPeers is empty: FoundationDB compares no address such as %s with a certificate, so give the rules for cluster and object storage" $host) -}}
{{- end -}}
{{- $rules = append $rules (printf "Check.Valid=1,S.subjectAltName=DNS:%s" $host) -}}
{{- end -}}
{{- end -}}
{{- if $rules }}{{ include "millrace.peers" (list "foundationdb.backup.verifyPeers" (join "|" $rules)) }}{{ end -}}
{{- end }}

{{/* A pod with FoundationDB's backup programs: (list $ COMMAND RESTART_POLICY) */}}
{{- define "millrace.backupPod" -}}
{{- $root := index . 0 -}}
{{- $backup := $root.Values.foundationdb.backup -}}
automountServiceAccountToken: false
enableServiceLinks: false
restartPolicy: {{ index . 2 }}
securityContext: {{- include "millrace.podSecurity" $root | nindent 2 }}
{{- with $root.Values.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
initContainers: {{- include "millrace.clusterFileInit" $root | nindent 2 }}
containers:
- name: backup
  image: {{ $backup.image.repository }}:{{ $backup.image.tag | default $root.Values.foundationdb.operator.version }}
  imagePullPolicy: {{ $backup.image.pullPolicy }}
  command: {{ index . 1 | toJson }}
  env:
  - { name: FDB_CLUSTER_FILE, value: /var/lib/millrace/fdb.cluster }
  - { name: FDB_TLS_CERTIFICATE_FILE, value: /etc/millrace/internal/tls.crt }
  - { name: FDB_TLS_KEY_FILE, value: /etc/millrace/internal/tls.key }
  # FoundationDB's programs verify the cluster and the object storage by one file.
  - { name: FDB_TLS_CA_FILE, value: /etc/millrace/backup/authorities.crt }
  {{- with include "millrace.backupPeers" $root }}
  - { name: FDB_TLS_VERIFY_PEERS, value: {{ . | quote }} }
  {{- end }}
  resources: {{- toYaml $backup.resources | nindent 4 }}
  securityContext: {{- include "millrace.containerSecurity" $root | nindent 4 }}
  # fdbbackup writes its trace files to where it runs.
  workingDir: /var/lib/millrace
  volumeMounts:
  - { name: internal, mountPath: /etc/millrace/internal, readOnly: true }
  - { name: credentials, mountPath: /etc/millrace/backup, readOnly: true }
  - { name: script, mountPath: /etc/millrace/script, readOnly: true }
  - { name: state, mountPath: /var/lib/millrace }
volumes:
- name: internal
  secret: {{ include "millrace.secret" (list $root.Values.internalTls.secretName "ca.crt" "tls.crt" "tls.key") }}
- name: credentials
  secret: {{ include "millrace.secret" (list $backup.secretName "blob-credentials.json" "authorities.crt") }}
- name: script
  configMap: { name: {{ include "millrace.name" $root }}-backup }
- name: cluster-file
  configMap:
    name: {{ include "millrace.clusterFileMap" $root }}
    items: [ { key: {{ include "millrace.clusterFileKey" $root }}, path: fdb.cluster } ]
- name: state
  emptyDir: { sizeLimit: 256Mi }
{{- end }}
