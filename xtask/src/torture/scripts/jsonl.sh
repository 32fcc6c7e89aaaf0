# control: a ledger of lines, and a pid file against overlap
grep -q '"state":"done"' ledger.jsonl 2>/dev/null && exit 0
[ -e pid ] && kill -0 "$(cat pid)" 2>/dev/null && exit 1
echo "$$" > pid
echo "$$" >> pids
echo "0 $FIRING" >> starts
echo "{\"work\":\"$WORK\",\"state\":\"running\"}" >> ledger.jsonl
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
echo "0 $FIRING" >> effects
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
echo "{\"work\":\"$WORK\",\"state\":\"done\"}" >> ledger.jsonl
rm -f pid
