// The walk in k6.
import http from 'k6/http';
import { sleep, fail } from 'k6';

const api = `${__ENV.BASE_URL}/api/vendor/v1`;
let token, proto;

export const options = { iterations: 1, vus: 1 };

function call(want, method, path, body, headers = {}) {
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = 'application/json';
  const r = http.request(method, api + path, body ? JSON.stringify(body) : null, { headers });
  if (r.status !== want) fail(`${method} ${path} answered ${r.status}: ${r.body || r.error}`);
  proto = r.proto;
  return r.json('data');
}

const store = {
  taxNumber: '1234567890', name: 'Moda Şubesi', phone: '02165550011',
  address: { text: 'Moda Caddesi No: 1, Kadıköy', latitude: 40.9816, longitude: 29.0258 },
};
const order = (id, packageNote) => ({
  externalStoreId: 'moda', externalOrderId: id, recipient: { name: 'Ayşe Kaya', phone: '05321234567' },
  dropoff: { text: 'Bahariye Caddesi No: 2, Kadıköy', latitude: 40.988, longitude: 29.03 }, packageNote,
});

export default function () {
  token = call(200, 'POST', '/token', { clientId: __ENV.CLIENT_ID, clientSecret: __ENV.CLIENT_SECRET }).accessToken;
  const fleetId = call(200, 'PUT', '/stores/moda', store).availableFleets[0].fleetId;
  let state = call(200, 'PUT', '/stores/moda', { ...store, fleetId });
  while (state.status !== 'Active') {
    sleep(0.3);
    state = call(200, 'PUT', '/stores/moda', store);
  }
  const delivered = call(201, 'POST', '/orders', order('A-1'), { 'Idempotency-Key': 'A-1' }).orderId;
  const again = call(201, 'POST', '/orders', order('A-1'), { 'X-Idempotency-Key': 'A-1' }).orderId;
  if (again !== delivered) fail(`the order again is ${again}, not ${delivered}`);
  const cancelled = call(201, 'POST', '/orders', order('A-2', 'SIM:HOLD=Assigned'), { 'Idempotency-Key': 'A-2' }).orderId;
  call(200, 'POST', `/orders/${cancelled}/cancel`);
  sleep(4);
  while (call(200, 'GET', `/orders/${delivered}`).status !== 'Delivered') sleep(10);
  console.log(`${delivered} ${cancelled} ${proto === 'HTTP/2.0' ? 'HTTP/2' : proto}`);
}
