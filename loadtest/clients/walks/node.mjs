// The walk in Node: with fetch, or with axios when AXIOS names its module.
// STREAM=1 sends bodies as streams, without a length.
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const api = `${process.env.BASE_URL}/api/vendor/v1`;
const axios = process.env.AXIOS && (await import(process.env.AXIOS)).default;
let token;

async function call(want, method, path, body, headers = {}) {
  if (token) headers.Authorization = `Bearer ${token}`;
  const stream = body !== undefined && process.env.STREAM;
  if (stream) headers['Content-Type'] = 'application/json';
  let status, data;
  if (axios) {
    const payload = stream ? Readable.from([JSON.stringify(body)]) : body;
    ({ status, data } = await axios.request({ method, url: api + path, data: payload, headers, validateStatus: null }));
  } else {
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const text = body === undefined ? undefined : JSON.stringify(body);
    const init = { method, headers, body: stream ? new Blob([text]).stream() : text };
    if (stream) init.duplex = 'half';
    const answer = await fetch(api + path, init);
    status = answer.status;
    data = await answer.json();
  }
  if (status !== want) throw new Error(`${method} ${path} answered ${status}: ${JSON.stringify(data)}`);
  return data.data;
}

({ accessToken: token } = await call(200, 'POST', '/token', { clientId: process.env.CLIENT_ID, clientSecret: process.env.CLIENT_SECRET }));

const store = {
  taxNumber: '1234567890', name: 'Moda Şubesi', phone: '02165550011',
  address: { text: 'Moda Caddesi No: 1, Kadıköy', latitude: 40.9816, longitude: 29.0258 },
};
const { availableFleets } = await call(200, 'PUT', '/stores/moda', store);
let state = await call(200, 'PUT', '/stores/moda', { ...store, fleetId: availableFleets[0].fleetId });
while (state.status !== 'Active') {
  await sleep(300);
  state = await call(200, 'PUT', '/stores/moda', store);
}

const order = (id, packageNote) => ({
  externalStoreId: 'moda', externalOrderId: id, recipient: { name: 'Ayşe Kaya', phone: '05321234567' },
  dropoff: { text: 'Bahariye Caddesi No: 2, Kadıköy', latitude: 40.988, longitude: 29.03 }, packageNote,
});
const delivered = (await call(201, 'POST', '/orders', order('A-1'), { 'Idempotency-Key': 'A-1' })).orderId;
const again = (await call(201, 'POST', '/orders', order('A-1'), { 'X-Idempotency-Key': 'A-1' })).orderId;
if (again !== delivered) throw new Error(`the order again is ${again}, not ${delivered}`);

const cancelled = (await call(201, 'POST', '/orders', order('A-2', 'SIM:HOLD=Assigned'), { 'Idempotency-Key': 'A-2' })).orderId;
await call(200, 'POST', `/orders/${cancelled}/cancel`);

await sleep(4000);
while ((await call(200, 'GET', `/orders/${delivered}`)).status !== 'Delivered') await sleep(10000);
console.log(delivered, cancelled, 'HTTP/1.1'); // neither speaks another one by default
