{{/*
The chart has no copy of the manifests. It reads those of deploy/base, deploy/nats, deploy/components
and deploy/overlays/default (manifests/ links to them) and changes what values say. Templates that
change an object do so in place and print nothing.
*/}}

{{/* Print the paths below manifests/ of the files that the values need, as a JSON array. */}}
{{- define "allotment.files" -}}
{{- $files := list "base/rbac.yaml" "base/network.yaml" "base/annotation-writers.yaml" "default/disruption.yaml" }}
{{- $services := ternary (list "watcher") (list "watcher" "filter" "scorer" "binder") .Values.oneProcess }}
{{- range concat $services (list "controller" "archiver" "inspector") }}
{{- $files = append $files (printf "base/%s.yaml" .) }}
{{- end }}
{{- range $path, $needed := dict
  "nats/service.yaml" (not .Values.nats.url)
  "nats/statefulset.yaml" (not .Values.nats.url)
  "nats/setup.yaml" (has "job" (list .Values.nats.keys .Values.nats.certificate))
  "components/cert-manager/certificates.yaml" (eq .Values.nats.certificate "cert-manager")
  "base/annotation-policy.yaml" .Values.annotationPolicy.enabled
  "base/watcher-mindcluster.yaml" .Values.mindcluster
  "components/node-locks/rbac.yaml" .Values.nodeLocks
  "components/one-process/rbac.yaml" .Values.oneProcess
  "components/inspector-service/service.yaml" .Values.inspector.service
  "components/monitoring/pod-monitor.yaml" .Values.monitoring.podMonitor
  "components/monitoring/rules.yaml" .Values.monitoring.rules
  "components/archive-s3/network.yaml" .Values.archive.url
  "components/traces/network.yaml" .Values.traces }}
{{- if $needed }}{{ $files = append $files $path }}{{ end }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{/* Print a file below manifests/, for the release's namespace. Takes the root and the path. */}}
{{- define "allotment.file" -}}
{{- $text := (index . 0).Files.Get (print "manifests/" (index . 1)) | replace "allotment-system" (index . 0).Release.Namespace }}
{{- if and (index . 0).Values.oneProcess (has (index . 1) (list "base/watcher.yaml" "default/disruption.yaml")) }}
{{- range list "allotment-%s" "allotment_%s" "allotment-nats-%s" "component: %s" }}
{{- $text = replace (printf . "watcher") (printf . "scheduler") $text }}
{{- end }}
{{- end }}
{{- if and (index . 0).Values.oneProcess (has (index . 1) (list "base/watcher-mindcluster.yaml" "components/node-locks/rbac.yaml")) }}
{{- $text = regexReplaceAll "ServiceAccount, name: allotment-(watcher|binder)," $text "ServiceAccount, name: allotment-scheduler," }}
{{- end }}
{{- $text }}
{{- end }}

{{/* Print "yes" if a file's object is needed. Takes the root and the object. */}}
{{- define "allotment.needed" -}}
{{- $values := (index . 0).Values }}
{{- $object := index . 1 }}
{{- $ofNats := eq $object.metadata.name "allotment-nats" }}
{{- $apart := has $object.metadata.name (list "allotment-filter" "allotment-scorer" "allotment-binder") }}
{{- $decides := regexMatch "^allotment-(filter|scorer|binder|controller|archive|assignment)" $object.metadata.name }}
{{- if and $ofNats $values.nats.url }}
{{- else if and $values.recorder $decides }}
{{- else if and (eq $object.kind "PersistentVolumeClaim") $values.archive.url }}
{{- else if and $values.oneProcess $apart (eq $object.kind "PodDisruptionBudget") }}
{{- else if ne $object.kind "PodDisruptionBudget" }}yes
{{- else if ternary $values.nats.servers $values.replicas $ofNats | int | lt 1 }}yes
{{- end }}
{{- end }}

{{/* Change an object of the file at a path as the values say. Takes the root, the path, the object. */}}
{{- define "allotment.configure" -}}
{{- $root := index . 0 }}
{{- $values := $root.Values }}
{{- $path := index . 1 }}
{{- $object := index . 2 }}
{{- $kind := $object.kind }}
{{- $name := $object.metadata.name }}
{{- $inCluster := list "ClusterRole" "ClusterRoleBinding" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding" }}
{{- if not (or (has $kind $inCluster) $object.metadata.namespace) }}
{{- $_ := set $object.metadata "namespace" $root.Release.Namespace }}
{{- end }}
{{- $labels := dict "app.kubernetes.io/part-of" "allotment" "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $_ := set $object.metadata "labels" (merge $labels ($object.metadata.labels | default dict)) }}
{{- if eq $path "nats/setup.yaml" }}{{ include "allotment.hook" (list $values.nats $object) }}{{ end }}
{{- if eq $kind "Deployment" }}{{ include "allotment.service" (list $root $object) }}
{{- else if eq $kind "PersistentVolumeClaim" }}{{/* the archive outlives the release, as the log does */}}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- $_ := set $object.spec.resources.requests "storage" (printf "%dGi" (int $values.archive.storage.sizeGiB)) }}
{{- with $values.archive.storage.className }}{{ $_ := set $object.spec "storageClassName" . }}{{ end }}
{{- else if eq $kind "StatefulSet" }}{{ include "allotment.nats" (list $root $object) }}
{{- else if eq $kind "ValidatingAdmissionPolicy" }}{{ include "allotment.annotationPolicy" (list $values $object) }}
{{- else if and (eq $kind "ClusterRoleBinding") (eq $name "allotment-assignment-writers") }}
{{- range $values.annotationPolicy.writers }}
{{- $account := dict "kind" "ServiceAccount" "name" .serviceAccount "namespace" .namespace }}
{{- $_ := set $object "subjects" (append $object.subjects $account) }}
{{- end }}
{{- else if and (eq $kind "ClusterRole") (eq $name "allotment-watcher") }}
{{- $names := $values.configMaps }}
{{- if ne $values.policyConfigMap "none" }}{{ $names = append $names (splitList "/" $values.policyConfigMap | last) }}{{ end }}
{{- $rules := list }}
{{- range $object.rules }}
{{- if .resourceNames }}{{ $_ := set . "resourceNames" (concat .resourceNames $names | uniq) }}{{ end }}
{{- if or (not $values.recorder) (has "list" .verbs) }}{{ $rules = append $rules . }}{{ end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- else if and (eq $kind "NetworkPolicy") (eq $name "allotment-nats") (gt (int $values.nats.servers) 1) }}
{{- $changes := include "allotment.file" (list $root "default/nats-network.patch.yaml") | fromYamlArray }}
{{- $_ := set $object.spec "ingress" (append $object.spec.ingress (first $changes).value) }}
{{- $_ := set $object.spec "egress" (last $changes).value }}
{{- else if and (eq $kind "NetworkPolicy") (eq $name "allotment-services") $values.nats.url }}
{{- $ports := list }}
{{- range splitList "," $values.nats.url }}
{{- $ports = append $ports (dict "port" (splitList ":" . | last | int) "protocol" "TCP") }}
{{- end }}
{{- $_ := set $object.spec "egress" (prepend (rest $object.spec.egress) (dict "ports" (uniq $ports))) }}
{{- else if and (eq $kind "NetworkPolicy") (eq $name "allotment-traces") }}
{{- $url := urlParse $values.traces }}
{{- $port := regexFind "[0-9]+$" $url.host | default (ternary "443" "80" (eq $url.scheme "https")) | int }}
{{- $_ := set (first (first $object.spec.egress).ports) "port" $port }}
{{- else if and (eq $kind "Service") (eq $name "allotment-nats") (gt (int $values.nats.servers) 1) }}
{{- $change := include "allotment.file" (list $root "default/nats-service.patch.yaml") | fromYaml }}
{{- $_ := set $object.spec "ports" (concat $change.spec.ports $object.spec.ports) }}
{{- else if eq $kind "PrometheusRule" }}
{{- range $object.spec.groups }}
{{- range .rules }}
{{- if and $values.recorder (eq .alert "AllotmentServiceMissing") }}{{/* of the watcher alone */}}
{{- $_ := set . "expr" (splitList "\n" .expr | first) }}
{{- end }}
{{- with .annotations }}
{{- $_ := set . "runbook_url" (print $values.monitoring.runbookUrl "#" (splitList "#" .runbook_url | last)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with $object.spec }}
{{- if hasKey . "template" }}{{ include "allotment.pod" (list $root .template.spec) }}{{ end }}
{{- end }}
{{- end }}

{{/*
Make the Job that creates Secrets, and its account and rights, hooks: they run before pods wait for the
Secrets, and are deleted afterwards. Takes the values of NATS and the object.
*/}}
{{- define "allotment.hook" -}}
{{- $object := index . 1 }}
{{- $_ := set $object.metadata "annotations" (dict
  "helm.sh/hook" "pre-install,pre-upgrade"
  "helm.sh/hook-weight" (ternary "1" "0" (eq $object.kind "Job"))
  "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded") }}
{{- if eq $object.kind "Job" }}
{{- $container := first $object.spec.template.spec.containers }}
{{- range list "keys" "certificate" }}
{{- if ne (get (index $ 0) .) "job" }}{{ $_ := set $container "args" (append $container.args (print "--no-" .)) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A service's Deployment. Takes the root and the object. */}}
{{- define "allotment.service" -}}
{{- $root := index . 0 }}
{{- $values := $root.Values }}
{{- $object := index . 1 }}
{{- $service := trimPrefix "allotment-" $object.metadata.name }}
{{- $patches := list "base/service.patch.yaml" }}
{{- if gt (int $values.replicas) 1 }}{{ $patches = append $patches "default/spread.patch.yaml" }}{{ end }}
{{- if eq $service "inspector" }}
{{- if or $values.archive.url $values.recorder }}{{ include "allotment.withoutVolume" $object }}{{ end }}
{{- if $values.inspector.service }}{{ $patches = append $patches "components/inspector-service/deployment.patch.yaml" }}{{ end }}
{{- if $values.traces }}{{ $patches = append $patches "components/traces/inspector.patch.yaml" }}{{ end }}
{{- else if eq $service "archiver" }}{{ include "allotment.archiver" (list $values.archive $object) }}
{{- else }}
{{- $_ := set $object.spec "replicas" (int $values.replicas) }}
{{- end }}
{{- range $patches }}
{{- include "allotment.patch" (list $object (include "allotment.file" (list $root .) | fromYaml)) }}
{{- end }}
{{- $variables := dict }}
{{- if has $service (list "watcher" "scheduler" "controller") }}
{{- $_ := set $variables "ALLOT_SCHEDULER_NAMES" (ternary "" (join "," $values.schedulerNames) $values.recorder) }}
{{- end }}
{{- if has $service (list "watcher" "scheduler") }}
{{- $_ := set $variables "ALLOT_LOG_MIB_MAX" (div (mul $values.nats.storage.sizeGiB 8192) 10 | toString) }}
{{- $_ := set $variables "ALLOT_POLICY_CONFIG_MAP" $values.policyConfigMap }}
{{- if $values.alongsideVolcano }}{{ $_ := set $variables "ALLOT_GROUP_PODS" "false" }}{{ end }}
{{- end }}
{{- if and (eq $service "inspector") $values.traces }}
{{- $_ := set $variables "OTEL_EXPORTER_OTLP_ENDPOINT" $values.traces }}
{{- end }}
{{- if and (eq $service "inspector") $values.inspector.service }}
{{- $own := printf "allotment-inspector,allotment-inspector.%[1]s,allotment-inspector.%[1]s.svc" $root.Release.Namespace }}
{{- $names := concat (list $own $values.inspector.ingress.host) $values.inspector.names | compact }}
{{- $_ := set $variables "ALLOT_PAGE_NAMES" (join "," $names) }}
{{- end }}
{{- range $name, $value := merge (get $values.settings $service | default dict) $variables }}
{{- include "allotment.variable" (list $object $name $value) }}
{{- end }}
{{- $container := first $object.spec.template.spec.containers }}
{{- $_ := set $container "resources" (get $values.resourcesOf $service | default $values.resources) }}
{{- if and (eq $service "archiver") $values.archive.url $values.archive.secret }}
{{- $_ := set $container "envFrom" (append $container.envFrom (dict "secretRef" (dict "name" $values.archive.secret))) }}
{{- end }}
{{- if and (eq $service "inspector") $values.archive.url $values.archive.readerSecret }}
{{- $_ := set $container "envFrom" (append $container.envFrom (dict "secretRef" (dict "name" $values.archive.readerSecret "optional" true))) }}
{{- end }}
{{- include "allotment.checksum" (list $object (include "allotment.settings" $root)) }}
{{- end }}

{{/* Where the archiver's archive is: on its volume, or in a bucket. Takes the values and the object. */}}
{{- define "allotment.archiver" -}}
{{- $archive := index . 0 }}
{{- $object := index . 1 }}
{{- with $archive.url }}
{{- include "allotment.variable" (list $object "ALLOT_ARCHIVE" .) }}
{{- include "allotment.withoutVolume" $object }}
{{- end }}
{{- end }}

{{/* Take the archive's volume from an object, and what keeps its pods on the volume's node. */}}
{{- define "allotment.withoutVolume" -}}
{{- $pod := .spec.template.spec }}
{{- $_ := set $pod "volumes" (list (first $pod.volumes)) }}
{{- $_ := unset (first $pod.containers) "volumeMounts" }}
{{- $_ := unset $pod "affinity" }}
{{- end }}

{{/* The StatefulSet of the built-in NATS. Takes the root and the object. */}}
{{- define "allotment.nats" -}}
{{- $root := index . 0 }}
{{- $nats := $root.Values.nats }}
{{- $object := index . 1 }}
{{- $_ := set $object.spec "replicas" (int $nats.servers) }}
{{- if gt (int $nats.servers) 1 }}
{{- include "allotment.patch" (list $object (include "allotment.file" (list $root "default/nats.patch.yaml") | fromYaml)) }}
{{- end }}
{{- $container := first $object.spec.template.spec.containers }}
{{- $_ := set $container "image" $nats.image }}
{{- $_ := set $container "resources" $nats.resources }}
{{- include "allotment.variable" (list $object "GOMEMLIMIT" $nats.goMemLimit) }}
{{- $claim := (first $object.spec.volumeClaimTemplates).spec }}
{{- $_ := set $claim.resources.requests "storage" (printf "%dGi" (int $nats.storage.sizeGiB)) }}
{{- with $nats.storage.className }}{{ $_ := set $claim "storageClassName" . }}{{ end }}
{{- include "allotment.checksum" (list $object (include "allotment.natsFiles" $root)) }}
{{- end }}

{{/* The admission policy's lists of names. Takes the values and the object. */}}
{{- define "allotment.annotationPolicy" -}}
{{- $values := index . 0 }}
{{- range (index . 1).spec.variables }}
{{- if eq .name "shares" }}
{{- $listed := trimSuffix "]" .expression }}
{{- range $values.annotationPolicy.resources }}{{ $listed = printf "%s, '%s'" $listed . }}{{ end }}
{{- $_ := set . "expression" (print $listed "]") }}
{{- else if eq .name "passesSchedulers" }}
{{- $last := "'hami-scheduler'" }}
{{- $listed := $last }}
{{- range concat $values.schedulerNames $values.annotationPolicy.schedulers | uniq }}
{{- if not (has . (list "allotment" "volcano" "hami-scheduler")) }}{{ $listed = printf "%s, '%s'" $listed . }}{{ end }}
{{- end }}
{{- $_ := set . "expression" (replace $last $listed .expression) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Image and place of a pod. Takes the root and the pod's spec. */}}
{{- define "allotment.pod" -}}
{{- $values := (index . 0).Values }}
{{- $pod := index . 1 }}
{{- $container := first $pod.containers }}
{{- if eq $container.image "allotment" }}
{{- $image := $values.image }}
{{- $tagged := printf "%s:%s" $image.repository ($image.tag | default (index . 0).Chart.AppVersion) }}
{{- $_ := set $container "image" (ternary (printf "%s@%s" $image.repository $image.digest) $tagged (ne $image.digest "")) }}
{{- with $image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end }}
{{- end }}
{{- $secrets := list }}
{{- range $values.image.pullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- $place := dict "imagePullSecrets" $secrets "nodeSelector" $values.nodeSelector "tolerations" $values.tolerations "priorityClassName" $values.priorityClassName }}
{{- range $field, $value := $place }}
{{- with $value }}{{ $_ := set $pod $field . }}{{ end }}
{{- end }}
{{- end }}

{{/* Apply a patch to an object and its pods as kustomize does: named lists join, all else is replaced. */}}
{{- define "allotment.patch" -}}
{{- $_ := mergeOverwrite (index . 0).spec (omit (index . 1).spec "template") }}
{{- $pod := (index . 0).spec.template.spec }}
{{- $change := (index . 1).spec.template.spec }}
{{- range $change.containers }}
{{- $container := first $pod.containers }}
{{- $changed := . }}
{{- range list "env" "ports" "volumeMounts" }}
{{- $joined := concat (get $changed . | default list) (get $container . | default list) }}
{{- if $joined }}{{ $_ := set $container . $joined }}{{ end }}
{{- end }}
{{- $_ := mergeOverwrite $container (omit $changed "env" "ports" "volumeMounts") }}
{{- end }}
{{- with $change.volumes }}{{ $_ := set $pod "volumes" (concat . ($pod.volumes | default list)) }}{{ end }}
{{- $_ := mergeOverwrite $pod (omit $change "containers" "volumes") }}
{{- end }}

{{/* Set a variable of an object's container. Takes the object, the name and the value. */}}
{{- define "allotment.variable" -}}
{{- $container := first (index . 0).spec.template.spec.containers }}
{{- $name := index . 1 }}
{{- $value := index . 2 }}
{{- $known := false }}
{{- range $container.env }}
{{- if eq .name $name }}{{ $known = true }}{{ $_ := set . "value" $value }}{{ end }}
{{- end }}
{{- if not $known }}
{{- $_ := set $container "env" (append ($container.env | default list) (dict "name" $name "value" $value)) }}
{{- end }}
{{- end }}

{{/* Restart an object's pods when a text changes. Takes the object and the text. */}}
{{- define "allotment.checksum" -}}
{{- $_ := set (index . 0).spec.template.metadata "annotations" (dict "checksum/config" (index . 1 | sha256sum)) }}
{{- end }}

{{/* Print the variables that all services get. */}}
{{- define "allotment.settings" -}}
{{- $settings := dict
  "ALLOT_NATS_URL" "tls://allotment-nats:4222"
  "ALLOT_NATS_CA" "/var/run/allotment-nats/ca.crt"
  "ALLOT_NATS_NKEY" "/var/run/allotment/nats.nk"
  "ALLOT_HTTP_HOST" "0.0.0.0"
  "ALLOT_HTTP_PORT" "8080"
  "ALLOT_SNAPSHOT_DIR" "/var/cache/allotment" }}
{{- if gt (int .Values.nats.servers) 1 }}
{{- $urls := list }}
{{- range until 3 }}{{ $urls = append $urls (printf "tls://allotment-nats-%d.allotment-nats:4222" .) }}{{ end }}
{{- $_ := set $settings "ALLOT_NATS_URL" (join "," $urls) }}
{{- $_ := set $settings "ALLOT_LOG_REPLICAS" (.Values.nats.servers | toString) }}
{{- end }}
{{- with .Values.nats.url }}{{ $_ := set $settings "ALLOT_NATS_URL" . }}{{ end }}
{{- toYaml $settings }}
{{- end }}

{{/* Print the configuration files of the built-in NATS. */}}
{{- define "allotment.natsFiles" -}}
{{- $store := printf "max_file_store: %dGB" (div (mul .Values.nats.storage.sizeGiB 9) 10) }}
{{- $files := list "nats/nats.conf" "nats/authorization.conf" }}
{{- if gt (int .Values.nats.servers) 1 }}{{ $files = append $files "default/cluster.conf" }}{{ end }}
{{- range $files }}
{{- $text := include "allotment.file" (list $ .) | replace "max_file_store: 9GB" $store }}
{{- include "allotment.entry" (list (base .) $text) }}
{{- end }}
{{- end }}

{{/* Print a ConfigMap. Takes the root, the name, the text of its data, and labels. */}}
{{- define "allotment.configMap" -}}
{{- $labels := dict "app.kubernetes.io/part-of" "allotment" "app.kubernetes.io/managed-by" (index . 0).Release.Service }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ index . 1 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- merge $labels (index . 3) | toYaml | nindent 4 }}
data:
  {{- index . 2 | trim | nindent 2 }}
{{ end }}

{{/* Print a file as an entry of a ConfigMap. Takes its name and its text. */}}
{{- define "allotment.entry" }}
{{ index . 0 }}: |
  {{- index . 1 | trim | nindent 2 }}
{{- end }}

{{/* Refuse values that do not go together, and upgrades that would lose the log. */}}
{{- define "allotment.refusals" -}}
{{- $nats := .Values.nats }}
{{- if and $nats.url (ne $nats.certificate "existing") }}
{{- fail "nats.url needs nats.certificate: existing: create the Secret allotment-nats-tls with the key ca.crt, the CA of that NATS" }}
{{- end }}
{{- if and .Values.inspector.ingress.enabled (not (and .Values.inspector.service .Values.inspector.ingress.host)) }}
{{- fail "inspector.ingress needs inspector.service: true and inspector.ingress.host" }}
{{- end }}
{{- if and .Values.recorder .Values.oneProcess }}
{{- fail "recorder runs no scheduler: leave out oneProcess" }}
{{- end }}
{{- $running := lookup "apps/v1" "StatefulSet" .Release.Namespace "allotment-nats" }}
{{- with $running }}
{{- $before := int .spec.replicas }}
{{- $after := ternary 0 (int $nats.servers) (ne $nats.url "") }}
{{- if not (has $before (list $after (int $nats.logSavedFrom))) }}
{{- fail (printf "%d NATS server runs here and would be replaced by %d, without the log. Save the log (allot log backup), then upgrade with nats.logSavedFrom=%d and restore it: see \"From one server to three\" in deploy/README.md" $before $after $before) }}
{{- end }}
{{- end }}
{{- end }}
