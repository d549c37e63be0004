"""A receiver of webhooks that believes nobody.

verify.py checks that a notification comes from the server that it knows (a JWT over the body, with the server's published
keys), is meant for this receiver, is about a task of the known owner and agent, and is the one that it asked for (the
token). This program also checks that it has not been seen before. With WEBHOOK_SECRET it checks the signature of Standard Webhooks instead of the
JWT: the server derives that secret for itself, one owner and one agent, so no other deliveries are signed with it.
`holdfast webhooks secret` prints OWNER and WEBHOOK_SECRET.

    ISSUER=https://agents.example.com OWNER=... AGENT=demo TOKEN=... python3 receiver.py 8000

Besides the standard library it needs the package cryptography.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.hazmat.primitives.asymmetric import ec

from verify import decode, verify

MAX_BODY = 16 << 20
LIFE = 300  # of a signature, in seconds


class Refused(Exception):
    """The notification is not for us."""


class KeySet:
    """The server's public keys.

    They are fetched from where the receiver knows that server, never from where a token says.
    """

    def __init__(self, url):
        self.url = url
        self.lock = threading.Lock()
        self.keys = {}
        self.fetched = float("-inf")

    def find(self, key_id):
        with self.lock:
            # Keys change. An unknown one is worth a look, but not for every request that somebody invents.
            if key_id not in self.keys and time.monotonic() - self.fetched > 10:
                self.fetched = time.monotonic()
                self.keys = self.fetch()
            if key_id not in self.keys:
                raise Refused("signed with a key that the server does not publish")
            return self.keys[key_id]

    def fetch(self):
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            found = json.load(answer)["keys"]
        keys = {}
        for key in found:
            if (key["kty"], key["crv"]) == ("EC", "P-256"):
                x, y = (int.from_bytes(decode(key[name]), "big") for name in "xy")
                keys[key["kid"]] = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        return keys


class Verifier:
    def __init__(self, issuer, owner, agent, url, token, secret=None):
        # The server's public URL, the URL of this receiver exactly as it was set, and owner and agent of our tasks. Another
        # owner may have a task of the same name, and may have set a webhook to this URL.
        self.want = {"iss": issuer, "aud": url, "owner": owner, "agent": agent}
        self.token = token  # as it was set; never empty
        self.secret = secret  # of Standard Webhooks, derived for the server, owner and agent; or None
        self.keys = KeySet(issuer + "/.well-known/jwks.json")
        self.lock = threading.Lock()
        self.seen = {}  # ids, and until when they must be remembered

    def verify(self, headers, body):
        """Returns the id of a genuine notification, or raises an exception."""
        if self.secret is not None:
            return self.verify_standard(headers, body)
        return str(verify(headers, body, self.token, self.want, self.keys.find)["jti"])

    def verify_standard(self, headers, body):
        """What the libraries of standardwebhooks.com do, and the token."""
        token = headers.get("X-A2A-Notification-Token", "")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise Refused("another token")
        name, at = headers.get("Webhook-Id", ""), headers.get("Webhook-Timestamp", "")
        if not name or not at.isascii() or not at.isdigit() or abs(time.time() - int(at)) > LIFE:
            raise Refused("no id, or a timestamp more than 5 minutes off")
        mac = hmac.new(self.secret, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
        expected = "v1," + base64.b64encode(mac).decode()
        for signature in headers.get("Webhook-Signature", "").split():
            if hmac.compare_digest(signature.encode(), expected.encode()):
                return name
        raise Refused("no signature matches")

    def first(self, name):
        """Reports whether an id is new.

        A repetition is no attack: the server sends again what it could not record, under the same id. A receiver with a
        database keeps ids there, with what it does about the notification in the same transaction.
        """
        now = time.monotonic()
        with self.lock:
            for old in [n for n, until in self.seen.items() if until < now]:
                del self.seen[old]
            new = name not in self.seen
            # Longer than a signature holds, because the server tries for days.
            self.seen[name] = now + 48 * 3600
            return new


def handler(verifier):
    class Handler(BaseHTTPRequestHandler):
        timeout = 60
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            # The server may ask whether we want to be a receiver (push.validation_challenge).
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            nonce = query.get("validationToken", [""])[0]
            self.answer(200 if nonce else 400, nonce)

        def do_POST(self):
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > MAX_BODY:
                self.close_connection = True
                self.answer(400, "a body of known length, please")
                return
            body = self.rfile.read(int(length))
            try:
                name = verifier.verify(self.headers, body)
            except OSError as reason:  # the keys could not be fetched: the server tries again
                print("put off:", reason, flush=True)
                self.answer(503, "later, please")
                return
            except Exception as reason:
                print("refused:", repr(reason), flush=True)
                self.answer(401, "not for us")
                return
            print("accepted" if verifier.first(name) else "repeated", name, flush=True)
            self.answer(204)

        def answer(self, status, text=""):
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            if status != 204:
                self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    return Handler


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        # That the other side hangs up between two requests is no news.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def required(name):
    """Returns a variable. Without one of them the receiver would accept what it cannot verify."""
    return os.environ.get(name) or sys.exit(f"{name} is not set")


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    server = Server(("127.0.0.1", port), None)
    url = os.environ.get("WEBHOOK_URL") or f"http://127.0.0.1:{server.server_port}/hook"
    secret = os.environ.get("WEBHOOK_SECRET")
    server.RequestHandlerClass = handler(
        Verifier(
            required("ISSUER"),
            "" if secret else required("OWNER"),
            "" if secret else required("AGENT"),
            url,
            required("TOKEN"),
            base64.b64decode(secret.removeprefix("whsec_")) if secret else None,
        )
    )
    print("listening at", url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
