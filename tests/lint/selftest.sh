#!/bin/sh
# selftest.sh - each lint passes a clean tree and fails a tree with one fault of its kind.
# shellcheck disable=SC2016 # backquotes of Markdown
set -eu
lints=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
bad=0

# fresh: a small tree without a fault.
fresh() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/estimator/base" "$tree/estimator/config" "$tree/runtime/kernels/cpu" \
        "$tree/runtime/kernels/cuda" "$tree/runtime/report" "$tree/tests/base" "$tree/docs"
    cat >"$tree/estimator/base/errors.h" <<'END'
#ifndef ERRORS_H
#define ERRORS_H
#define PL_ERR_MAP(X) X(IO, 1, "RUNTIME_IO", "") X(USAGE, 2, "CONFIG_USAGE", "")
#endif
END
    echo '#include "estimator/base/errors.h"' >"$tree/estimator/config/job.c"
    echo '#include <yaml.h>' >"$tree/estimator/config/yaml.c"
    echo '#include <check.h>' >"$tree/tests/base/check_base.c"
    echo 'int a;' >"$tree/runtime/kernels/cpu/rope.c"
    echo 'int b;' >"$tree/runtime/kernels/cuda/rope.c"
    printf 'static int f(void) {\n    return 0;\n}\n' >"$tree/runtime/report/log.c"
    printf '# X\n\n## Error codes\n`RUNTIME_IO`, `CONFIG_USAGE`\n\n## Next\n`DATA_NONE`\n' \
        >"$tree/docs/reference.md"
    printf '# X\n[reference](docs/reference.md#error-codes)\n' >"$tree/README.md"
}

# expect LINT MESSAGE: the lint fails and says so. An empty message: it passes.
expect() {
    status=0
    lint=$lints/$1
    [ -f "$lint" ] || lint=$lint.sh
    said=$("$lint" "$tree" 2>&1) || status=$?
    if [ -z "$2" ]; then
        [ "$status" -eq 0 ] && return
    else
        [ "$status" -ne 0 ] && echo "$said" | grep -qF -- "$2" && return
    fi
    echo "$1: wanted '${2:-no fault}', exit $status, said: $said" >&2
    bad=$((bad + 1))
}

fresh
for lint in layers circles comments named headers allocation job lengths text words errors names promises pages invariants asserted; do
    expect "$lint" ""
done

# layers: each fault alone
include() {
    fresh
    echo "#include $2" >>"$tree/$1"
    expect layers "$3"
}
include estimator/base/errors.h '"estimator/config/job.h"' 'estimator/base may not include'
include estimator/config/job.c '"runtime/report/report.h"' 'estimator/config may not include'
include runtime/report/log.c '"oom_recovery/recovery.h"' 'runtime/report may not include'
include runtime/report/log.c '"log.h"' 'may not include "log.h"'
include runtime/report/log.c '<yaml.h>' '<yaml.h> belongs to'
include runtime/report/log.c '<check.h>' '<check.h> belongs to'
include runtime/report/log.c '<omp.h>' '<omp.h> belongs to'
include tests/base/check_base.c '<cblas.h>' '<cblas.h> belongs to'
fresh
mkdir -p "$tree/runtime/elsewhere"
echo '#include "estimator/base/errors.h"' >"$tree/runtime/elsewhere/x.c"
expect layers 'lies in no room'
fresh
mkdir "$tree/corpus"
expect layers 'corpus/: no room of the source tree'
echo '/corpus/' >"$tree/.gitignore"
expect layers ''
rm "$tree/.gitignore"

# circles: three units, of which the last closes the circle by its header
circle() {
    fresh
    echo '#include "runtime/report/steps.h"' >>"$tree/runtime/report/log.c"
    echo '#include "runtime/report/lines.h"' >"$tree/runtime/report/steps.h"
    echo "#include \"runtime/report/$1.h\"" >"$tree/runtime/report/lines.h"
    touch "$tree/runtime/report/log.h" "$tree/runtime/report/rows.h"
    expect circles "$2"
}
circle log 'circle runtime/report/lines runtime/report/log runtime/report/steps'
circle rows ''
touch "$tree/tests/base/log.h"
expect circles 'header log.h runtime/report/log.h tests/base/log.h'
fresh
mkdir -p "$tree/tests/lint"
printf "table='\nestimator/base:\nruntime/report: estimator/base/errors.h\n'\n" >"$tree/tests/lint/layers.sh"
expect circles ''
printf "table='\nruntime/gone:\nruntime/report: estimator/base/gone.h\n'\n" >"$tree/tests/lint/layers.sh"
expect circles 'row runtime/gone: no file begins with runtime/gone/'
expect circles 'row runtime/report: no file begins with estimator/base/gone.h'

# declared LINE MESSAGE: a source that declares what it should include
declared() {
    fresh
    printf '%s\n' "$1" >>"$tree/runtime/report/log.c"
    expect circles "$2"
}
hidden="log.c:4: a declaration of another unit's belongs into a header"
declared 'extern int pl_gone;' "$hidden"
declared '#define X(name) extern int pl_##name;' "$hidden"
declared 'extern "C" int pl_gone(int a);' "$hidden"
declared 'int pl_gone(int a, int (*b)(int));' "$hidden"
declared 'extern "C" int pl_here(int a) { return g(a); }' ''
declared 'int pl_here(int a) { return g(a); } /* extern int x; */' ''
declared 'static const char text[] = "extern int x;";' ''
declared 'static int later(int a);' ''

# named FILE LINE MESSAGE: a page or a picture that names what is not there
named() {
    fresh
    printf 'int pl_log_open(struct pl_log *l);\n' >"$tree/runtime/report/log.c"
    echo "$2" >>"$tree/$1"
    expect named "$3"
}
named docs/reference.md '`runtime/report/log.c` has `pl_log_open` and `struct pl_log`' ''
named docs/reference.md '`runtime/report/gone.c`' 'docs/reference.md: there is no runtime/report/gone.c'
named docs/reference.md '`gone.c`' 'docs/reference.md: no file is called gone.c'
named docs/reference.md '`pl_log_open()`, `cmd_<name>.c`' ''
named docs/reference.md '`pl_log_gone()`' 'docs/reference.md: nothing is called pl_log_gone'
named docs/reference.md '| `estimator/config/yaml.c` | `pl_log_open` |' 'estimator/config/yaml.c has no pl_log_open'
named docs/x.svg '<text>runtime/report/log.c</text><text>pl_log_open</text>' ''
named docs/x.svg '<text>runtime/report/yaml.c</text>' 'docs/x.svg: there is no runtime/report/yaml.c'
named docs/x.svg '<text>runtime/kernels/cpu/rope.c</text><text>pl_log_open</text>' 'has no pl_log_open'

# named: arrows that the table does not have, and rows without an arrow
arrows() {
    fresh
    mkdir -p "$tree/tests/lint"
    printf "table='\na/base:\na/plan: a/base/\nb: a/ c/x.h\nc: a/base/\n'\n" >"$tree/tests/lint/layers.sh"
    for arrow in "$@"; do
        [ "$arrow" = "$1" ] || echo "<title>$arrow</title>"
    done >"$tree/docs/x.svg"
    expect named "$1"
}
arrows '' 'a/plan may include a/base' 'b may include a' 'b may include c' 'c may include a/base'
arrows 'c may not include a/plan' 'a/plan may include a/base' 'b may include c' 'c may include a/plan'
arrows 'no arrow leads from b to c/x.h' 'a/plan, c may include a/base' 'b may include a'
arrows 'no arrow leads from b to a/' 'a/plan, c may include a/base' 'b may include c'

# calls: a source that calls another one, which may call it again, or another room
calls() {
    fresh
    printf 'int steps(void);\nint log_(void) { return steps(); }\n' >"$tree/runtime/report/log.c"
    printf '%s\nint steps(void) { return %s(); }\n' "int $1(void);" "$1" >"$tree/runtime/report/steps.c"
    mkdir -p "$tree/build"
    list=
    for unit in runtime/report/log runtime/report/steps; do
        mkdir -p "$tree/build/$(dirname "$unit")"
        ${CC:-cc} -c "$tree/$unit.c" -o "$tree/build/$unit.o"
        list="$list${list:+,}{\"directory\": \"$tree/build\", \"file\": \"../$unit.c\", \"output\": \"$unit.o\"}"
    done
    echo "[$list]" >"$tree/build/compile_commands.json"
    expect calls "$2"
    rm -rf "$tree/build"
}
calls log_ 'circle of calls runtime/report/log.c runtime/report/steps.c'
calls rest ''

fresh
echo 'uint64_t bytes(void);' >"$tree/runtime/report/report.h"
expect headers 'report.h: does not compile alone'
fresh
echo 'struct twice { int a; };' >"$tree/runtime/report/report.h"
expect headers 'report.h: does not compile alone'

fresh
echo 'char *p = strdup(s);' >"$tree/runtime/report/log.c"
expect allocation 'runtime/report/log.c:1:'
echo 'char *p = json_dumps(o, 0);' >"$tree/runtime/report/log.c"
expect allocation 'runtime/report/log.c:1:'
echo '    json_array_append_new(list, v);' >"$tree/runtime/report/log.c"
expect allocation 'runtime/report/log.c:1:'
echo '    if (json_array_append_new(list, v) == 0) return;' >"$tree/runtime/report/log.c"
expect allocation ''
echo 'void *p = x->malloc(8), *q = pl_malloc(8);' >"$tree/runtime/report/log.c"
expect allocation ''
echo 'char *p = malloc(8);' >"$tree/tests/base/check_base.c"
expect allocation ''

# job: through a pointer, of a run's own copy, and by a pointer that could
write_job() {
    fresh
    echo "$2" >>"$tree/$1"
    expect job "$3"
}
write_job runtime/report/log.c '    pf->job->batch_size = 1;' 'make it a fact'
write_job runtime/report/log.c '    a.job.batch_size /= 2;' 'a run has no copy'
write_job runtime/report/log.c 'int f(struct pl_job *job);' 'a run does not write'
write_job estimator/base/errors.h '    job->given[PL_KEY_mode] = true;' 'make it a fact'
write_job estimator/base/errors.h '    v->job.batch_size = 1;' ''
write_job estimator/config/job.c '    job->batch_size = 1;' ''
write_job runtime/report/log.c '    if (job->batch_size == 1) x(&(const struct pl_job *job));' ''

# long_function LINES: a body with braces where they do not count
long_function() {
    echo 'static int f(void) {'
    echo '    const char *s = "}"; /* } */ // }'
    echo "    char c = '}';"
    i=5
    while [ "$i" -lt "$1" ]; do
        echo '    f();'
        i=$((i + 1))
    done
    printf '    return 0;\n}\n'
}
fresh
long_function 121 >"$tree/runtime/report/log.c"
expect lengths 'log.c:1: 121 lines'
long_function 120 >"$tree/runtime/report/log.c"
expect lengths ''
sed -i '1s/.*/static const char *const table[] = {/; $s/.*/};/' "$tree/runtime/report/log.c"
sed -i '2i "a",' "$tree/runtime/report/log.c"
expect lengths ''
fresh
i=0
while [ "$i" -le 800 ]; do
    echo 'int x;'
    i=$((i + 1))
done >"$tree/runtime/report/log.c"
expect lengths 'log.c: 801 lines'

# text FILE CONTENT MESSAGE
text() {
    fresh
    printf '%b\n' "$2" >"$tree/$1"
    expect text "$3"
}
text README.md 'blank at the end ' 'trailing blanks'
text runtime/report/log.c '\tint x;' 'a tab'
text runtime/report/log.c '/* TO''DO: later */' 'a note to do it later'
text runtime/report/log.c '/* XX''X */' 'a note to do it later'
text runtime/report/log.c '"/tmp/x-XXXXXX"' ''
text runtime/report/log.c "$(printf '%0101d' 0)" 'longer than 100 columns'
text runtime/report/log.c "$(printf '%0100d' 0)" ''

fresh
printf 'IndentWidth: 4\nColumnLimit: 100\n' >"$tree/.clang-format"
printf 'indent_size = 4\nmax_line_length = 80\n' >"$tree/.editorconfig"
expect text 'max_line_length 80, .clang-format has 100'
sed -i 's/80/100/' "$tree/.editorconfig"
expect text ''
rm "$tree/.clang-format" "$tree/.editorconfig"

for word in '/wo''rk/x' 'sha''red/x' 'a helper ses''sion' 'an AI assis''tant'; do
    fresh
    echo "$word" >>"$tree/README.md"
    expect words "$word"
done

fresh
sed -i 's/`CONFIG_USAGE`//' "$tree/docs/reference.md"
expect errors 'CONFIG_USAGE is missing'
fresh
sed -i 's/`CONFIG_USAGE`/& `DATA_GONE`/' "$tree/docs/reference.md"
expect errors 'DATA_GONE is not in'
fresh
echo '# X' >"$tree/docs/reference.md"
expect errors ''

fresh
echo 'return pl_diag_set(d, e, "no memory to read");' >"$tree/runtime/report/log.c"
expect errors 'no memory for WHAT'
echo 'return pl_diag_set(d, e, "no memory for %s", what);' >"$tree/runtime/report/log.c"
expect errors ''

fresh
echo 'int c;' >"$tree/estimator/config/log.c"
expect names 'log.c: estimator/config/log.c runtime/report/log.c'

# comments LINE MESSAGE
comments() {
    fresh
    echo "$1" >>"$tree/runtime/report/log.c"
    expect comments "$2"
}
comments '/* Of the last step. */' 'runtime/report/log.c:4: a fragment: Of the last step.'
comments '/* log.c - What is written. */' 'a fragment: What is written.'
comments '/* True if it stands behind a step. */' '`behind`: write after'
comments 'const char *s = "/* Of a string. */";' ''

fresh
printf '#!/bin/sh\n# Where it is.\n' >"$tree/runtime/report/run"
expect comments 'runtime/report/run:2: a fragment: Where it is.'
printf '#!/bin/sh\necho "# Where it is."\n' >"$tree/runtime/report/run"
expect comments ''
printf '# A file that lies beside another.\n' >"$tree/runtime/report/run.py"
expect comments '`beside`: write after'
fresh
echo 'It lies behind it.' >>"$tree/docs/reference.md"
expect comments 'docs/reference.md:'

# pages FILE LINE MESSAGE
pages() {
    fresh
    echo "$2" >>"$tree/$1"
    expect pages "$3"
}
pages docs/reference.md '[x](gone.md)' 'docs/reference.md: no file gone.md'
pages docs/reference.md '[x](../README.md#gone)' 'no heading ../README.md#gone'
pages docs/reference.md '[x](#next)' ''
pages docs/more.md '# More' 'README.md: no link to docs/more.md'
pages MORE.md '# More' 'README.md: no link to MORE.md'
pages CHANGELOG.md '## 0.2.0' 'the newest release is 0.2.0, meson.build has none'
fresh
printf "project('x', 'c',\n  version: '0.2.0',\n" >"$tree/meson.build"
printf '## 0.3.0\n\n## 0.2.0\n' >"$tree/CHANGELOG.md"
echo '[changes](CHANGELOG.md)' >>"$tree/README.md"
expect pages 'the newest release is 0.3.0, meson.build has 0.2.0'
sed -i 1d "$tree/CHANGELOG.md"
expect pages ''
pages README.md "$(yes 'a line' | head -n 200)" 'README.md: more than 200 lines'
pages runtime/report/log.c 'getenv("PLIMSOLL_X")' 'PLIMSOLL_X is missing'

# invariants TEXT MESSAGE: of the first comment of a header
invariants() {
    fresh
    printf '/* log.h - text\n%s\n * Use: f(); */\nint x; /* R9  */\n' "$1" >"$tree/runtime/report/log.h"
    expect invariants "$2"
}
invariants ' *   R1  one
 *       more
 *   R2  two' ''
invariants ' *   1  one
 *   2  two' ''
invariants ' *   R1  one R2  two' 'log.h:2: R2 does not begin a line'
invariants ' *   R1  one
 *       more; R2  two' 'log.h:3: R2 does not begin a line'
invariants ' *   R1  one R2 two
 *   R3  three' 'log.h:3: R3 follows R1'

# asserted: a number that code or a test names, and one that nothing does
asserted() {
    fresh
    mkdir "$tree/oom_recovery" "$tree/tests/oom"
    printf '/* oom.h - x\n *   O1  one */\n' >"$tree/oom_recovery/oom.h"
    printf '%s\n' "$1" >"$tree/tests/oom/check_oom.c"
    expect asserted "$2"
}
asserted '#include "oom_recovery/oom.h"
int a; /* O1 */' ''
asserted 'int a; /* O1 of oom.h */' ''
asserted 'int a; /* O1 */' 'oom.h:2: neither code nor a test names O1'
asserted 'int a; /* O1 of other.h */' 'oom.h:2: neither code nor a test names O1'
asserted '#include "oom_recovery/oom.h"
int O1;' 'oom.h:2: neither code nor a test names O1'

# promises TABLE-ROW MESSAGE
promises() {
    fresh
    mkdir -p "$tree/docs" "$tree/build/meson-info"
    echo '[{"name": "train.kept"}, {"name": "fuzz.csv"}]' >"$tree/build/meson-info/intro-tests.json"
    printf '## What we promise\n| promise | tests |\n| --- | --- |\n%s\n' "$1" \
        >"$tree/docs/reliability.md"
    BUILD_ROOT=$tree/build expect promises "$2"
}
promises '| all | `train.kept`, `fuzz.csv` |' ''
promises '| all | `train.kept`, `train.gone` |' 'there is no test train.gone'
promises '| all `train.kept` | |' 'no test holds it'

[ "$bad" -eq 0 ] || exit 1
