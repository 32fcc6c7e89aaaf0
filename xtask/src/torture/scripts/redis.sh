# control: SET NX EX, and a key that says that it is done; no token
ask() { redis-cli -p "$REDIS" "$@"; }
[ "$(ask GET "done:$WORK")" = 1 ] && exit 0
[ "$(ask SET "lock:$WORK" "$$" NX EX 1)" = OK ] || exit 1
echo "$$" >> pids
echo "0 $FIRING" >> starts
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
echo "0 $FIRING" >> effects
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
ask SET "done:$WORK" 1 > /dev/null
[ "$(ask GET "lock:$WORK")" = "$$" ] && ask DEL "lock:$WORK" > /dev/null
exit 0
