# Written for one Airflow task: adds OpenLineage to every spark-submit below it.
_datahub_users="${@users@:-$SPARK_HOME/conf}"
SPARK_CONF_DIR="$_datahub_users"
if [ -z "$SPARK_DATAHUB_ENV_LOADED" ] && [ -f "$_datahub_users/spark-env.sh" ]; then
  SPARK_DATAHUB_ENV_LOADED=1
  . "$_datahub_users/spark-env.sh"
fi
if [[ "$1" == @submit@ || "$1" == @pipelines@ ]] && _datahub_file=$(mktemp @folder@/launch.XXXXXXXX 2>/dev/null); then
  if @python@ -I -c @bootstrap@ @folder@ "$_datahub_file" "$@"; then
    _datahub_arguments=()
    while IFS= read -r -d '' _datahub_argument; do
      _datahub_arguments+=("$_datahub_argument")
    done < "$_datahub_file"
    if [ ${#_datahub_arguments[@]} -gt 1 ]; then
      SPARK_CONF_DIR="${_datahub_arguments[0]}"
      set -- "${_datahub_arguments[@]:1}"
    fi
  fi
  rm -f "$_datahub_file"
fi
# A spark-submit below this one comes here again.
unset @loaded@ _datahub_users _datahub_file _datahub_arguments _datahub_argument
