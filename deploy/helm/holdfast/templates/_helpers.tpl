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
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
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

{{- define "holdfast.env" -}}
{{- range $name, $secret := .Values.secretEnv }}
- name: {{ $name }}
  {{- include "holdfast.secret" $secret | nindent 2 }}
{{- end }}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}
