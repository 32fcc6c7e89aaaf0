# one fenced file; the control moves a new one over it instead
echo "$$" >> pids
echo "$SEMEL_TOKEN $FIRING" >> starts
echo "$SEMEL_TOKEN" > "draft.$$"
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
if [ -n "$PLAIN" ]; then
    mv "draft.$$" target || exit $?
else
    "$SEMEL" write target < "draft.$$" || exit $?
fi
echo "$SEMEL_TOKEN" >> accepted
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
