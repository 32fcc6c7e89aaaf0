# one row behind the fence of a PostgreSQL database; the control leaves the fence out
fence="SELECT semel_fence('$SEMEL_RESOURCE', $SEMEL_TOKEN, '$SEMEL_NONCE');"
[ -z "$PLAIN" ] || fence=
echo "$$" >> pids
echo "$SEMEL_TOKEN $FIRING" >> starts
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
psql "$SINK" -XAtq -v ON_ERROR_STOP=1 -c "BEGIN;
$fence
INSERT INTO log (work, token) VALUES ('$WORK', $SEMEL_TOKEN);
INSERT INTO effects (work, token) SELECT '$WORK', $SEMEL_TOKEN WHERE NOT EXISTS (SELECT 1 FROM effects WHERE work = '$WORK');
COMMIT;" || exit 1
echo "$SEMEL_TOKEN" >> accepted
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
