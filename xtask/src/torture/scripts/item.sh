# one item of a batch
echo "$$" >> pids
echo "$SEMEL_TOKEN $FIRING" >> starts
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
echo "$1 $SEMEL_KEY" >> effects
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
