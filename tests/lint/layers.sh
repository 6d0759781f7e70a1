#!/bin/sh
# layers.sh SOURCE-ROOT - who may include whom, and which folders there are. An include that no row of
# the table allows fails, and so does a folder at the top that is no room.
set -eu
. "$(dirname "$0")/files.sh"
cd "$1"

# room: prefixes it may include besides its own. A file belongs to the longest room it lies in.
table='
estimator/base:
estimator/config: estimator/base/ estimator/ops/
estimator/gguf: estimator/base/
estimator/model: estimator/base/ estimator/ops/attr.h estimator/gguf/
estimator/card: estimator/base/
estimator/find: estimator/base/ estimator/config/ estimator/gguf/ estimator/model/
estimator/import: estimator/base/ estimator/config/ estimator/model/catalogue.h
estimator/rule_of_thumb: estimator/base/
estimator/program: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/
estimator/ops: estimator/base/ estimator/card/traits.h
estimator/program/emit: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/ estimator/program/
estimator/plan: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/ estimator/program/
estimator/picture: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/ estimator/program/ estimator/plan/
estimator/search: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/ estimator/program/ estimator/plan/
estimator/gate: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/ estimator/program/ estimator/plan/ estimator/autobatch/ estimator/search/
estimator/autobatch: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/ estimator/program/ estimator/plan/ estimator/search/
estimator/inquiry: estimator/base/ estimator/config/ estimator/find/ estimator/model/ estimator/card/ estimator/plan/ estimator/gate/ estimator/autobatch/ estimator/rule_of_thumb/
estimator/api: estimator/base/ estimator/config/ estimator/inquiry/
estimator/advice: estimator/base/ estimator/ops/ estimator/config/ estimator/model/ estimator/card/ estimator/program/ estimator/plan/ estimator/picture/ estimator/gate/ estimator/autobatch/ estimator/search/
oom_recovery: estimator/
runtime/comm: estimator/base/
runtime/device: estimator/base/ estimator/card/ estimator/ops/ runtime/comm/
runtime/kernels: estimator/base/ estimator/ops/ runtime/comm/ runtime/device/
runtime/exec: estimator/ runtime/device/ runtime/kernels/
runtime/data: estimator/ runtime/device/ runtime/kernels/
runtime/checkpoint: estimator/ runtime/comm/ runtime/device/ runtime/kernels/
runtime/report: estimator/ runtime/device/ runtime/kernels/
runtime/admit: estimator/ oom_recovery/recovery.h runtime/comm/ runtime/device/ runtime/data/ runtime/checkpoint/ runtime/report/
runtime/session: estimator/ oom_recovery/ runtime/comm/ runtime/device/ runtime/exec/ runtime/kernels/back_ends.h runtime/checkpoint/adapter_io.h runtime/checkpoint/cut.h runtime/checkpoint/init.h runtime/checkpoint/model_io.h runtime/checkpoint/tensor_io.h runtime/admit/admission.h runtime/admit/anew.h runtime/admit/context.h runtime/admit/graphs.h
runtime/merge: estimator/ runtime/checkpoint/ runtime/exec/ runtime/kernels/back_ends.h
runtime/train: estimator/ oom_recovery/recovery.h runtime/comm/ runtime/exec/ runtime/data/ runtime/checkpoint/ runtime/report/ runtime/admit/ runtime/session/ runtime/merge/merge.h runtime/generate/decode.h
runtime/generate: estimator/ oom_recovery/recovery.h runtime/kernels/rng.h runtime/admit/preflight.h runtime/session/
tools/plimsoll: estimator/ oom_recovery/checklist.h runtime/
tests: estimator/ oom_recovery/ runtime/ tools/
'

# header: the only places that may include it; "-" = nowhere.
angles='
yaml.h: estimator/config/yaml.c
check.h: tests/
omp.h: -
cblas.h: -
'

report=$(
    for f in $(c_files '*.[ch]' '*.cu'); do
        sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\([<"][^>"]*\).*/\1/p' "$f" |
            sed "s|^|$f |"
    done | awk -v table="$table" -v angles="$angles" '
        BEGIN {
            n = split(table, rows, "\n")
            for (i = 1; i <= n; i++) {
                if (split(rows[i], half, ":") < 2) continue
                rooms[half[1]] = half[2]
            }
            n = split(angles, rows, "\n")
            for (i = 1; i <= n; i++) {
                if (split(rows[i], half, ": ") < 2) continue
                only[half[1]] = half[2]
            }
        }
        function starts(s, prefix) { return substr(s, 1, length(prefix)) == prefix }
        {
            file = $1
            kind = substr($2, 1, 1)
            header = substr($2, 2)
            if (kind == "<") {
                if (header in only && !starts(file, only[header]))
                    print file ": <" header "> belongs to " only[header] " alone"
                next
            }
            room = ""
            for (r in rooms) if (starts(file, r "/") && length(r) > length(room)) room = r
            if (room == "") {
                print file ": lies in no room of the table"
                next
            }
            ok = starts(header, room "/")
            n = split(rooms[room], allowed, " ")
            for (i = 1; i <= n; i++) if (starts(header, allowed[i])) ok = 1
            if (!ok) print file ": " room " may not include \"" header "\""
        }'
)
# is_ignored FOLDER: .gitignore names it.
is_ignored() {
    [ -f .gitignore ] || return 1
    while read -r pattern; do
        # shellcheck disable=SC2254 # a pattern
        case /$1/ in /${pattern#/}) return 0 ;; esac
    done <.gitignore
    return 1
}
strangers=$(
    for folder in */; do
        case " $rooms configs docs " in *" ${folder%/} "*) continue ;; esac
        is_ignored "${folder%/}" || echo "$folder: no room of the source tree"
    done
)
report=$(printf '%s\n%s' "$report" "$strangers" | sed '/^$/d')
[ -z "$report" ] && exit 0
echo "$report" >&2
finish layers "$(echo "$report" | wc -l)"
