// Shows the page's document. Nothing is asked of anybody but this gateway.
const viewer = document.getElementById('viewer');
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
