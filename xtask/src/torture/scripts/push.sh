# one commit, pushed through the fence
echo "$$" >> pids
echo "$SEMEL_TOKEN $FIRING" >> starts
git clone -q --no-checkout "$PWD/remote.git" "clone.$$" || exit 1
cd "clone.$$" || exit 1
mkdir ../first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
git commit -q --allow-empty -m work --trailer "$("$SEMEL" commit-trailer)" || exit 1
"$SEMEL" push origin main || exit $?
cd .. && echo "$SEMEL_TOKEN" >> accepted
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
