# control: look whether it is there, commit, push; overtaken, replay on top and push again
git clone -q "$PWD/remote.git" "clone.$$" 2>/dev/null || exit 1
cd "clone.$$" || exit 1
[ -n "$(git log --format=%H --grep="^Effect-Id: $WORK\$" main)" ] && exit 0
echo "$$" >> ../pids
echo "0 $FIRING" >> ../starts
mkdir ../first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
git commit -q --allow-empty -m work --trailer "Effect-Id: $WORK" || exit 1
tries=0
until git push -q origin main 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 5 ] || exit 1
    git pull -q --rebase origin main || exit 1
done
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
