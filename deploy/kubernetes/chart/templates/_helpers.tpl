{{- define "fencegate.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "fencegate.hosts" -}}
{{- $name := include "fencegate.name" . -}}
{{- $service := printf "%s.%s" $name .Release.Namespace -}}
localhost,0.0.0.0/0,::/0,{{ $name }},{{ $service }},{{ $service }}.svc,{{ $service }}.svc.cluster.local
{{- end }}

{{- define "fencegate.selector" -}}
app.kubernetes.io/name: fencegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fencegate.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.image.tag | splitList "@" | first | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fencegate.metadata" -}}
name: {{ include "fencegate.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  app.kubernetes.io/name: fencegate
  {{- include "fencegate.labels" . | nindent 2 }}
{{- end }}

{{- /* What the pods of gateways and of the migration have in common. */}}
{{- define "fencegate.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- range $field := list "priorityClassName" "nodeSelector" "tolerations" "affinity" }}
{{- with index $.Values $field }}
{{ dict $field . | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{- define "fencegate.container" -}}
image: {{ .Values.image.repository }}:{{ required "image.tag is required" .Values.image.tag }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* The variables of a database: of the values, with its secret and its key. */}}
{{- define "fencegate.database" -}}
- name: FENCEGATE_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .secretKey }}}}
{{- if include "fencegate.isSet" .ca }}
- name: PGSSLROOTCERT
  value: /etc/fencegate/database/{{ .ca.key }}
- name: PGSSLMODE
  value: verify-full
{{- end }}
{{- end }}

{{- /* The volume of an authority, and whether there is one. */}}
{{- define "fencegate.isSet" -}}
{{ or .secretName .configMapName }}
{{- end }}
{{- define "fencegate.authority" -}}
{{- if and .secretName .configMapName -}}
{{- fail "an authority is in secretName or in configMapName, not in both" -}}
{{- end -}}
{{- if .secretName -}}
secret: {secretName: {{ .secretName }}}
{{- else -}}
configMap: {name: {{ .configMapName }}}
{{- end }}
{{- end }}

{{- /* Whether an access file is used. It fails where values do not fit together. */}}
{{- define "fencegate.access" -}}
{{- $needed := regexMatch "tokens|certificates" .Values.auth }}
{{- $certificates := contains "certificates" .Values.auth }}
{{- $authority := include "fencegate.isSet" .Values.clientCA }}
{{- if and $needed (not (or .Values.access.secretName .Values.access.file)) }}
{{- fail "auth: tokens and certificates need access.secretName or access.file" }}
{{- else if and (not $needed) (or .Values.access.secretName .Values.access.file) }}
{{- fail "access is for auth: tokens and certificates" }}
{{- else if and $certificates (not $authority) }}
{{- fail "auth: certificates needs clientCA.secretName or clientCA.configMapName" }}
{{- else if and $authority (not .Values.tls.secretName) }}
{{- fail "clientCA needs tls.secretName" }}
{{- end }}
{{- if $needed }}true{{ end }}
{{- end }}

{{- /* The variables of a gateway. */}}
{{- define "fencegate.env" -}}
- name: FENCEGATE_LISTEN
  value: 0.0.0.0:8080
{{- include "fencegate.database" .Values.database | nindent 0 }}
# For fencegate keys create.
- name: FENCEGATE_IN_DATABASE
  valueFrom: {secretKeyRef: {name: {{ .Values.database.secretName }}, key: {{ .Values.database.secretKey }}}}
- name: FENCEGATE_MIGRATE
  value: {{ eq .Values.migration.by "gateways" | quote }}
{{- if eq .Values.auth "none" }}
- name: FENCEGATE_INSECURE_NO_AUTH
  value: "true"
{{- if not (hasKey .Values.env "FENCEGATE_ALLOWED_HOSTS") }}
# Addresses, and the names of the service.
- name: FENCEGATE_ALLOWED_HOSTS
  value: {{ include "fencegate.hosts" . }}
{{- end }}
{{- else }}
- name: FENCEGATE_AUTH
  value: {{ .Values.auth }}
{{- end }}
{{- if include "fencegate.access" . }}
- name: FENCEGATE_ACCESS_FILE
  value: /etc/fencegate/access/access.yaml
{{- end }}
{{- if include "fencegate.isSet" .Values.clientCA }}
- name: FENCEGATE_CLIENT_CA
  value: /etc/fencegate/client-ca/{{ .Values.clientCA.key }}
{{- end }}
{{- if .Values.tls.secretName }}
- name: FENCEGATE_TLS_CERT
  value: /etc/fencegate/tls/tls.crt
- name: FENCEGATE_TLS_KEY
  value: /etc/fencegate/tls/tls.key
{{- end }}
- name: FENCEGATE_DRAIN_DELAY
  value: {{ .Values.drainDelay }}
# The drain included. Less than terminationGracePeriodSeconds.
- name: FENCEGATE_SHUTDOWN_TIMEOUT
  value: 20s
- name: GOMEMLIMIT
  value: {{ .Values.memoryTarget }}
{{- end }}

{{- /* The volumes of a gateway. Each is mounted as /etc/fencegate/NAME, but the service account's. */}}
{{- define "fencegate.volumes" -}}
{{- with .Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- if include "fencegate.isSet" .Values.clientCA }}
- name: client-ca
  {{- include "fencegate.authority" .Values.clientCA | nindent 2 }}
{{- end }}
{{- if include "fencegate.isSet" .Values.database.ca }}
- name: database
  {{- include "fencegate.authority" .Values.database.ca | nindent 2 }}
{{- end }}
{{- if include "fencegate.access" . }}
- name: access
  projected:
    sources:
      {{- with .Values.access.secretName }}
      - secret: {name: {{ . }}}
      {{- end }}
      {{- if .Values.access.file }}
      - configMap: {name: {{ include "fencegate.name" . }}}
      {{- end }}
{{- end }}
{{- if .Values.access.serviceAccountToken }}
- name: service-account
  projected:
    sources:
      - serviceAccountToken: {path: token}
      - configMap: {name: kube-root-ca.crt}
{{- end }}
{{- end }}
