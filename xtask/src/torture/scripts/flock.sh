# control, called under flock -n: a marker says that it is done
[ -e done ] && exit 0
echo "$$" >> pids
echo "0 $FIRING" >> starts
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
echo "0 $FIRING" >> effects
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
touch done
