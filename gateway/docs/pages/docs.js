// Shows the page's document. Nothing is asked of anybody but this gateway.
const viewer = document.getElementById('viewer');
if (viewer) {
  window.ui = SwaggerUIBundle({
    url: viewer.dataset.document,
    domNode: viewer,
    deepLinking: true,
    docExpansion: 'list',
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    persistAuthorization: false,
    validatorUrl: null,
  });
}

// Without a configured public address the gateway is where the page came from.
for (const code of document.querySelectorAll('main.text code')) {
  if (code.textContent.includes('{base_url}')) {
    code.textContent = code.textContent.replaceAll('{base_url}', location.origin);
  }
}
