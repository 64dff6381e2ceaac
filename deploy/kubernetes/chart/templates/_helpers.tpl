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

{{- define "fencegate.metadata" -}}
name: {{ include "fencegate.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "fencegate.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Values.image.tag | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
