# Sourced by prolog and epilog: append one line of JSON about this job to a file of this node.
#
# On a healthy node nothing here starts a process or asks slurmctld: bash's own words only. A Prolog has
# no PATH, and every job of the cluster waits for it.
# shellcheck shell=bash

# record_job_event EVENT FOLDER: EVENT is start or end; FOLDER has slurmkit-hooks.conf, if there is one.
record_job_event() {
    local LC_ALL=C
    local STATE_DIR=/var/lib/slurmkit MAX_BYTES=4194304
    read_hook_settings "$2/slurmkit-hooks.conf"

    local node=${SLURMD_NODENAME:-${HOSTNAME%%.*}}
    case $node in '' | .* | */*) return ;; esac # never a path of somebody else's choice
    local folder=$STATE_DIR/$node file
    file=$folder/jobs.jsonl
    [[ -d $folder ]] || make_folder "$folder" || return
    [[ -L $file ]] && return
    [[ -e $file && ! -f $file ]] && return # a pipe would block the job

    local line now
    printf -v now '%(%s)T' -1
    line="{\"version\":1,\"time\":$now,\"event\":\"$1\""
    add_string cluster "$SLURM_CLUSTER_NAME"
    add_number job "$SLURM_JOB_ID"
    add_number restart "${SLURM_RESTART_COUNT:-0}"
    add_number uid "$SLURM_JOB_UID"
    add_string partition "$SLURM_JOB_PARTITION"
    add_string node "$node"
    add_string gpus "$SLURM_JOB_GPUS"
    if [[ $1 == end ]]; then
        # "3:0" is exit code 3, "0:9" is death by signal 9. The highest code of all steps comes as wait() has it.
        local code=${SLURM_JOB_EXIT_CODE2:-}
        add_number exit_code "${code%%:*}"
        add_number signal "${code##*:}"
        code=${SLURM_JOB_DERIVED_EC:-}
        [[ $code =~ ^[0-9]{1,6}$ ]] && code=$((10#$code >> 8))
        add_number highest_exit_code "$code"
    fi
    append_line "$file" "$line}"
}

# read_hook_settings FILE: take STATE_DIR and MAX_BYTES from lines KEY=VALUE. Nothing in it is executed.
read_hook_settings() {
    [[ -f $1 && -r $1 ]] || return
    local key value
    while IFS='=' read -r key value || [[ $key ]]; do
        case $key in
            STATE_DIR) [[ $value == /* ]] && STATE_DIR=${value%/} ;;
            MAX_BYTES) [[ $value =~ ^[1-9][0-9]{3,11}$ ]] && MAX_BYTES=$value ;;
        esac
    done <"$1"
}

# make_folder FOLDER: the first job of a node only.
make_folder() {
    umask 022
    /bin/mkdir -p -- "$1" || /usr/bin/mkdir -p -- "$1"
}

# append_line FILE LINE: in one write, so that jobs that start together do not mix their lines.
append_line() {
    umask 022
    local file=$1 line=$2 handle position=0 limit=$((MAX_BYTES / 1024 + 1024)) key value
    # Should renaming below fail, the kernel itself stops the file 1 MiB later: a disk is never filled.
    trap '' XFSZ
    ulimit -S -f "$limit"
    exec {handle}>>"$file" || return
    printf '%s\n' "$line" >&"$handle"
    # Where this write ended. Only the one that crossed the limit renames, however many there are at once.
    while IFS=$':\t ' read -r key value; do
        [[ $key == pos ]] && position=$value
    done <"/proc/self/fdinfo/$handle"
    exec {handle}>&-
    if ((position > MAX_BYTES && position - ${#line} - 1 <= MAX_BYTES)); then
        /bin/mv -f -- "$file" "$file.1" || /usr/bin/mv -f -- "$file" "$file.1"
    fi
}

# add_number KEY VALUE, add_string KEY VALUE: extend $line by a member; what is no number becomes null.
add_number() {
    if [[ $2 =~ ^(0|[1-9][0-9]{0,17})$ ]]; then line+=",\"$1\":$2"; else line+=",\"$1\":null"; fi
}

add_string() {
    local text=${2:0:200} out='' char code i
    if [[ $text == *[!A-Za-z0-9\ ._:/@,+=\[\]-]* ]]; then
        # Every other byte by its number: right in any encoding, and quotes cannot end the string.
        for ((i = 0; i < ${#text}; i++)); do
            char=${text:i:1}
            case $char in
                [A-Za-z0-9\ ._:/@,+=-]) out+=$char ;;
                *)
                    printf -v code '%d' "'$char"
                    printf -v char '\\u%04x' "$((code & 255))"
                    out+=$char
                    ;;
            esac
        done
        text=$out
    fi
    line+=",\"$1\":\"$text\""
}
