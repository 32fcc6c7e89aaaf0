# one row behind the fence of a SQLite database; the control leaves the fence out
fence="INSERT INTO semel_fence (resource, token, nonce) VALUES ('$SEMEL_RESOURCE', $SEMEL_TOKEN, '$SEMEL_NONCE');"
[ -z "$PLAIN" ] || fence=
echo "$$" >> pids
echo "$SEMEL_TOKEN $FIRING" >> starts
mkdir first 2>/dev/null && BEFORE=$FIRST
[ "$BEFORE" = 0 ] || sleep "$BEFORE" || :
sqlite3 -bail -cmd '.timeout 30000' user.db "BEGIN IMMEDIATE;
$fence
INSERT INTO log (token) VALUES ($SEMEL_TOKEN);
INSERT INTO effects (token) SELECT $SEMEL_TOKEN WHERE NOT EXISTS (SELECT 1 FROM effects);
COMMIT;" || exit 1
echo "$SEMEL_TOKEN" >> accepted
[ "$AFTER" = 0 ] || sleep "$AFTER" || :
