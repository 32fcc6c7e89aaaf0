# three effects: two that can be asked about, one that cannot
echo "$$" >> pids
echo "$SEMEL_TOKEN $FIRING" >> starts
mkdir first 2>/dev/null && BEFORE=$FIRST
one='echo "$$" >> pids; echo "$0" >> begun
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
echo "$0" >> effects
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
echo "$0" >> ended'
"$SEMEL" step one --probe 'grep -qx one effects' -- sh -c "$one" one || exit $?
"$SEMEL" step two --probe 'grep -qx two effects' -- sh -c "$one" two || exit $?
"$SEMEL" step three -- sh -c "$one" three || exit $?
