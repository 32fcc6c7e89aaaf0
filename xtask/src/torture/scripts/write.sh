# one fenced file
echo "$$" >> pids
echo "$SEMEL_TOKEN $FIRING" >> starts
echo "$SEMEL_TOKEN" > "draft.$$"
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
"$SEMEL" write target < "draft.$$" || exit $?
echo "$SEMEL_TOKEN" >> accepted
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
