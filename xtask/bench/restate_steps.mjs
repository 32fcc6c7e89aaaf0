// Restate's durable steps: `node restate_steps.mjs PACKAGES INGRESS ADMIN STEPS AT_ONCE`, where PACKAGES is the
// package.json beside which the SDK is installed.
//
// A service whose handler does its steps one after the other, each by `ctx.run`: what it returns is in the server's log,
// synced, before the next begins. So many invocations at once, through the ingress and over connections that are kept.
// The service listens on loopback and is registered with the server at the given ports. Prints the steps per second.

import http from "node:http";
import http2 from "node:http2";
import { createRequire } from "node:module";

// the SDK wants Node 22 and is otherwise content with what Debian has
Promise.withResolvers ??= () => {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
};

process.env.RESTATE_LOGGING ??= "ERROR";
const [packages, ingress, admin, steps, atOnce] = process.argv.slice(2);
const restate = createRequire(packages)("@restatedev/restate-sdk");

const bench = restate.service({
  name: "bench",
  handlers: {
    many: async (ctx, count) => {
      let sum = 0;
      for (let n = 0; n < count; n++) sum += await ctx.run(`s${n}`, () => 1);
      return sum;
    },
  },
});

const agent = new http.Agent({ keepAlive: true, maxSockets: Number(atOnce) });

function post(port, path, body) {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const request = http.request({ host: "127.0.0.1", port, path, method: "POST", agent, headers }, (answer) => {
      let text = "";
      answer.on("data", (part) => (text += part));
      answer.on("end", () =>
        answer.statusCode < 300 ? resolve(text) : reject(new Error(`${path}: ${answer.statusCode} ${text}`)),
      );
    });
    request.on("error", reject);
    request.end(JSON.stringify(body));
  });
}

async function many(count) {
  const sums = await Promise.all(Array.from({ length: Number(atOnce) }, () => post(ingress, "/bench/many", count)));
  const done = sums.reduce((sum, text) => sum + Number(text), 0);
  if (done !== count * Number(atOnce)) throw new Error(`${done} steps were done`);
  return done;
}

const service = http2.createServer(restate.createEndpointHandler({ services: [bench] }));
await new Promise((listening) => service.listen(0, "127.0.0.1", listening));
const uri = `http://127.0.0.1:${service.address().port}`;
// a server that was started just now may not take it yet
for (let tries = 300; ; tries--) {
  try {
    await post(admin, "/deployments", { uri, force: true });
    break;
  } catch (why) {
    if (tries === 0) throw why;
    await new Promise((later) => setTimeout(later, 100));
  }
}
await many(10);
const each = Math.max(1, Math.ceil(Number(steps) / Number(atOnce)));
const began = process.hrtime.bigint();
const done = await many(each);
console.log(done / (Number(process.hrtime.bigint() - began) / 1e9));
process.exit(0);
