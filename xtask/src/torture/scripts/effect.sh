# one effect: a line in a file that nobody fences
echo "$$" >> pids
echo "${SEMEL_TOKEN:-0} $FIRING" >> starts
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
echo "${SEMEL_TOKEN:-0} $FIRING" >> effects
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
echo "$FIRING" >> ended
