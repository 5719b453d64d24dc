# Read before every block of the documentation that a test runs: the commands of the page, on free ports.
#
# TIDEGATE is the program, RUN a folder of the page for what outlives a block, and the working directory is another.
# A broker is started by the first command that needs one, or by the page itself; sub and kp subscribe, which would
# never end, run beside the others, and what they have printed comes at the end of the block.

set -eu
umask 077
[ -f "$RUN/doors" ] && . "$RUN/doors"

# What the page calls its default ports, as they are here.
_here() {
    printf '%s' "$1" | sed -e "s/\(127\.0\.0\.1\|localhost\):1883\b/127.0.0.1:${MQTT-}/g" \
        -e "s/\(127\.0\.0\.1\|localhost\):8083\b/127.0.0.1:${WS-}/g" \
        -e "s/\(127\.0\.0\.1\|localhost\):18830\b/127.0.0.1:${ADMIN-}/g" \
        -e "s/\(127\.0\.0\.1\|localhost\):7878\b/127.0.0.1:${SPARQL-}/g" \
        -e "s/\(127\.0\.0\.1\|localhost\):5683\b/127.0.0.1:${COAP-}/g" \
        -e "s/\(127\.0\.0\.1\|localhost\):1885\b/127.0.0.1:${SN-}/g" \
        -e "s/\(127\.0\.0\.1\|localhost\):8082\b/127.0.0.1:${TOPICS-}/g" \
        -e "s/\(127\.0\.0\.1\|localhost\):10010\b/127.0.0.1:${SSAP-}/g"
}

# Port of the word behind the door in the banner: "mqtt 127.0.0.1:1883", "ws://127.0.0.1:8083/mqtt".
_port() { sed -n "1s/.*\b$1:*\/* *\(http:\/\/\)\{0,1\}[0-9.]*:\([0-9]*\).*/\2/p" "$RUN/banner"; }

_end_broker() {
    [ -f "$RUN/pid" ] || return 0
    kill "$(cat "$RUN/pid")" 2>/dev/null || :
    _wait_until "the broker ends" sh -c "! kill -0 $(cat "$RUN/pid") 2>/dev/null"
    rm -f "$RUN/pid" "$RUN/doors"
}

# A condition of another process, looked at until it holds; a minute at most.
_wait_until() {
    what=$1 looks=0
    shift
    until "$@"; do
        looks=$((looks + 1))
        [ $looks -lt 1200 ] || { echo "not within a minute: $what" >&2; exit 1; }
        sleep 0.05
    done
}

_has_banner() {
    grep -q admin "$RUN/banner" && return 0
    kill -0 "$(cat "$RUN/pid")" 2>/dev/null || { cat "$RUN/banner" "$RUN/log" >&2; echo "the broker did not start" >&2; exit 1; }
    return 1
}

_serve() {
    _end_broker
    : >"$RUN/banner"
    # The environment wins over files, and flags of the page would win over it.
    (
        export TIDEGATE_LISTENERS__MQTT=127.0.0.1:0 TIDEGATE_LISTENERS__WS=127.0.0.1:0
        export TIDEGATE_LISTENERS__ADMIN=127.0.0.1:0 TIDEGATE_LISTENERS__HTTP=127.0.0.1:0
        [ -f tidegate.toml ] || export TIDEGATE_LISTENERS__SSAP=127.0.0.1:0 TIDEGATE_LISTENERS__COAP=127.0.0.1:0
        [ -f tidegate.toml ] || export TIDEGATE_LISTENERS__SN=127.0.0.1:0
        export TIDEGATE_LISTENERS__HTTP_TOPICS=127.0.0.1:0
        export TIDEGATE_LISTENERS__AMQP=127.0.0.1:0
        if [ -f tidegate.toml ] && grep -q '^cert' tidegate.toml; then
            export TIDEGATE_LISTENERS__MQTTS=127.0.0.1:0 TIDEGATE_LISTENERS__WSS=127.0.0.1:0
        fi
        exec "$TIDEGATE" serve "$@" >"$RUN/banner" 2>"$RUN/log"
    ) &
    echo $! >"$RUN/pid"
    _wait_until "the broker starts" _has_banner
    MQTT=$(_port mqtt) WS=$(_port ws) ADMIN=$(_port admin) SPARQL=$(_port sparql) SSAP=$(_port ssap) COAP=$(_port coap)
    TOPICS=$(_port topics) SN=$(_port sn)
    echo "MQTT=$MQTT WS=$WS ADMIN=$ADMIN SPARQL=$SPARQL SSAP=$SSAP COAP=$COAP TOPICS=$TOPICS SN=$SN" >"$RUN/doors"
    cat "$RUN/banner"
}

_need_broker() {
    [ -f "$RUN/doors" ] || _serve >/dev/null
}

_is_given() {
    flag=$1
    shift
    for word; do [ "$word" != "$flag" ] || return 0; done
    return 1
}

# A command that goes on: it has begun when it says so, and must have printed something by the end of the block.
FOLLOWERS=
_follow() {
    sign=$1
    shift
    out=$(mktemp "$RUN/follow.XXXXXX")
    "$@" >"$out" 2>"$out.err" &
    FOLLOWERS="$FOLLOWERS $!:$out"
    [ -z "$sign" ] || _wait_until "$*: $sign" grep -q "$sign" "$out.err"
}

# Somebody who is connected while the block runs.
CLIENTS=
_client() {
    _need_broker
    "$TIDEGATE" sub -d -h 127.0.0.1 -p "$MQTT" -i "$1" -t 't/#' -W 120 >/dev/null 2>"$RUN/client.$1" &
    CLIENTS="$CLIENTS $!"
    _wait_until "$1 is there" grep -q '^subscribed' "$RUN/client.$1"
}

trap 'for follower in $FOLLOWERS $CLIENTS; do kill "${follower%%:*}" 2>/dev/null || :; done' EXIT
# Anything, or a line like the one that the command was begun with; or it has ended.
_has_said() {
    [ -s "$2" ] || return 1
    [ ! -f "$2.line" ] || grep -q "$(cat "$2.line")" "$2" || ! kill -0 "$1" 2>/dev/null
}
_end_followers() {
    for follower in $FOLLOWERS; do
        out=${follower#*:}
        _wait_until "output of a command that goes on ($(cat "$out.err"))" _has_said "${follower%%:*}" "$out"
        kill "${follower%%:*}" 2>/dev/null || :
        cat "$out"
    done
}

_tidegate() {
    case "${1-serve}" in
    serve) [ $# -eq 0 ] || shift; _serve "$@" ;;
    pub | sub)
        _need_broker
        verb=$1
        shift
        _is_given -p "$@" || _is_given -L "$@" || set -- -h 127.0.0.1 -p "$MQTT" "$@"
        if [ "$verb" = pub ] || _is_given -C "$@" || _is_given -W "$@"; then
            "$TIDEGATE" "$verb" "$@"
        else
            _follow '^subscribed' "$TIDEGATE" sub -d "$@"
        fi
        ;;
    top) _need_broker; shift; _is_given --once "$@" || set -- --once "$@"; "$TIDEGATE" top "$@" --admin "http://127.0.0.1:$ADMIN" ;;
    status | alarms | why | clients | kps | drops | limits | ban | kick | health | reload | drain | trace)
        _need_broker
        "$TIDEGATE" "$@" --admin "http://127.0.0.1:$ADMIN"
        ;;
    backup) if _is_given --from "$@"; then "$TIDEGATE" "$@"; else _need_broker; "$TIDEGATE" "$@" --admin "http://127.0.0.1:$ADMIN"; fi ;;
    restore | store) _end_broker; "$TIDEGATE" "$@" ;;
    rdf) _need_broker; _is_given --space "$@" || set -- "$@" --space "http://127.0.0.1:$SPARQL"; "$TIDEGATE" "$@" ;;
    kp)
        _need_broker
        case "$2" in
        subscribe) TIDEGATE_SPACE="http://127.0.0.1:$SPARQL" _follow '' "$TIDEGATE" "$@" ;;
        watch)
            TIDEGATE_SPACE="http://127.0.0.1:$SPARQL" _follow '' "$TIDEGATE" "$@"
            # What it is there for comes once a second, after the first rows.
            _is_given --json "$@" || echo '^# .* AST' >"$out.line"
            ;;
        *) TIDEGATE_SPACE="http://127.0.0.1:$SPARQL" "$TIDEGATE" "$@" ;;
        esac
        ;;
    user) if [ "$2" = add ]; then echo correct-horse | "$TIDEGATE" "$@" --password-stdin; else "$TIDEGATE" "$@"; fi ;;
    -h | --help | --version | -V) "$TIDEGATE" "$@" ;;
    -*) _serve "$@" ;;
    *) "$TIDEGATE" "$@" ;;
    esac
}

# Every argument with the ports of here.
_with_ports() {
    command=$1
    shift
    count=$#
    while [ $count -gt 0 ]; do
        word=$(_here "$1")
        shift
        set -- "$@" "$word"
        count=$((count - 1))
    done
    $command "$@"
}

tidegate() { _with_ports _tidegate "$@"; }
_curl() { command curl -sS --max-time 20 "$@"; echo; }
curl() { _need_broker; _with_ports _curl "$@"; }
mosquitto_pub() { tidegate pub "$@"; }
mosquitto_sub() { tidegate sub "$@"; }
cargo() {
    [ "${1-}" = run ] || { echo "cargo $*: say why it is not run" >&2; exit 1; }
    shift
    while [ $# -gt 0 ]; do
        case "$1" in
        --) shift; tidegate "$@"; return ;;
        --release | --quiet) shift ;;
        *) echo "cargo run $1: say why it is not run" >&2; exit 1 ;;
        esac
    done
    tidegate
}
