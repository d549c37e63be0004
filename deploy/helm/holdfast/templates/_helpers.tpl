{{- define "holdfast.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "holdfast.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The components, with their defaults, as a map. */}}
{{- define "holdfast.components" -}}
{{- $all := dict -}}
{{- range $name, $component := .Values.components -}}
{{- $merged := mergeOverwrite (deepCopy $.Values.defaults) (deepCopy ($component | default dict)) -}}
{{- if $merged.enabled -}}
{{- $_ := set $all $name $merged -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- define "holdfast.secret" -}}
valueFrom:
  secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}
{{- end -}}

{{/* What every pod has: it runs as nobody, writes no files and needs no privilege. */}}
{{- define "holdfast.podSpec" -}}
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.podSecurityContext }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "holdfast.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "holdfast.rootCertificatesEnv" -}}
{{- if .Values.database.rootCertificates.configMap }}
- name: PGSSLROOTCERT
  value: /etc/holdfast/database/{{ .Values.database.rootCertificates.key }}
{{- end }}
{{- end -}}

{{- define "holdfast.volumes" -}}
{{- with .Values.database.rootCertificates.configMap }}
- name: database-roots
  configMap: {name: {{ . | quote }}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "holdfast.volumeMounts" -}}
{{- if .Values.database.rootCertificates.configMap }}
- {name: database-roots, mountPath: /etc/holdfast/database, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The environment of a component's servers: config check in the Job gets the same. */}}
{{- define "holdfast.serverEnv" -}}
- {name: HOLDFAST_CONFIG, value: /etc/holdfast/holdfast.yaml}
- {name: HOLDFAST_ROLES, value: {{ join "," .component.roles | quote }}}
- {name: HOLDFAST_LISTEN, value: ":8080"}
- {name: HOLDFAST_GRPC_LISTEN, value: ":8081"}
- {name: HOLDFAST_ADMIN_LISTEN, value: ":9090"}
- {name: HOLDFAST_DRAIN_DELAY, value: {{ printf "%ds" (int .root.Values.grace.drain) | quote }}}
{{- if .root.Values.migration.enabled }}
# The Job migrates.
- {name: HOLDFAST_MIGRATE, value: wait}
{{- end }}
{{- if not (dig "run_api" "url" "" .root.Values.config) }}
# Where agents in the cluster reach any replica with the role api.
- {name: HOLDFAST_RUN_API_URL, value: "http://{{ (include "holdfast.fullname" .root) }}.{{ .root.Release.Namespace }}:8080"}
{{- end }}
- name: HOLDFAST_DATABASE_URL
  {{- include "holdfast.secret" .root.Values.database.urlSecret | nindent 2 }}
{{- if .root.Values.database.listenUrlSecret.name }}
- name: HOLDFAST_LISTEN_DATABASE_URL
  {{- include "holdfast.secret" .root.Values.database.listenUrlSecret | nindent 2 }}
{{- end }}
{{- include "holdfast.rootCertificatesEnv" .root }}
{{- include "holdfast.env" .root }}
{{- end -}}

{{- define "holdfast.env" -}}
{{- range $name, $secret := .Values.secretEnv }}
- name: {{ $name }}
  {{- include "holdfast.secret" $secret | nindent 2 }}
{{- end }}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}
