'use strict';
// Shows the token in a header, so that no address, no history and no log has it; gets a cookie.
document.getElementById('token').onsubmit = async e => {
  e.preventDefault();
  const token = document.getElementById('shown').value.trim();
  const answer = await fetch('/token', { headers: { Authorization: 'Bearer ' + token } }).catch(() => null);
  if (answer?.ok) location.reload();
  else document.getElementById('answer').textContent = answer ? 'Wrong token.' : 'No answer from the inspector.';
};
