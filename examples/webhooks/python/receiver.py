"""A receiver of webhooks that believes nobody.

It checks that a notification comes from the server that it knows (a JWT over the body, with the server's published
keys), is meant for this receiver, is about a task of the known owner and agent, is the one that it asked for (the
token), and has not been seen before. With WEBHOOK_SECRET it checks the signature of Standard Webhooks instead of the
JWT: the server derives that secret for itself, one owner and one agent, so no other deliveries are signed with it.
`holdfast push secret` prints OWNER and WEBHOOK_SECRET.

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

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

MAX_BODY = 16 << 20
LEEWAY = 60
LIFE = 300  # of a signature, in seconds


class Refused(Exception):
    """The notification is not for us."""


def unbase64url(text):
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


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
                x, y = (int.from_bytes(unbase64url(key[name]), "big") for name in "xy")
                keys[key["kid"]] = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        return keys


class Verifier:
    def __init__(self, issuer, owner, agent, url, token, secret=None):
        self.issuer = issuer  # the server's public URL
        self.owner = owner  # the claim owner of our tasks
        self.agent = agent  # the agent of our tasks
        self.url = url  # of this receiver, exactly as it was set
        self.token = token  # as it was set; never empty
        self.secret = secret  # of Standard Webhooks, derived for the server, owner and agent; or None
        self.keys = KeySet(issuer + "/.well-known/jwks.json")
        self.lock = threading.Lock()
        self.seen = {}  # ids, and until when they must be remembered

    def verify(self, headers, body):
        """Returns the id of a genuine notification, or raises Refused."""
        token = headers.get("X-A2A-Notification-Token", "")
        if not token or not hmac.compare_digest(token.encode(), self.token.encode()):
            raise Refused("the token is absent, or does not match")
        if self.secret is not None:
            return self.verify_standard(headers, body)
        return self.verify_jwt(headers.get("X-A2A-Signature", ""), body)

    def verify_jwt(self, compact, body):
        try:
            signed, _, encoded = compact.rpartition(".")
            head, _, payload = signed.partition(".")
            header = json.loads(unbase64url(head))
            signature = unbase64url(encoded)
            # The algorithm is ours to choose and not the token's.
            if header["alg"] != "ES256" or "crit" in header or len(signature) != 64:
                raise Refused("not signed with ES256")
            key = self.keys.find(header["kid"])
            r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
            key.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
            claims = json.loads(unbase64url(payload))
            now = time.time()
            if claims["iss"] != self.issuer:
                raise Refused("signed by another server")
            if claims["aud"] != self.url:
                raise Refused("meant for another receiver")
            # Another owner may have a task of the same name, and may have set a webhook to this URL.
            if claims["owner"] != self.owner:
                raise Refused("a task of another owner")
            if claims["agent"] != self.agent:
                raise Refused("a task of another agent")
            if not claims["iat"] - LEEWAY <= now <= claims["exp"] + LEEWAY:
                raise Refused("signed at another time")
            if not hmac.compare_digest(claims["request_body_sha256"], hashlib.sha256(body).hexdigest()):
                raise Refused("the body differs from the signed one")
            return str(claims["jti"])
        except InvalidSignature:
            raise Refused("the signature does not fit") from None
        except (ValueError, KeyError, TypeError) as mistake:
            raise Refused(f"no JWT: {mistake!r}") from None

    def verify_standard(self, headers, body):
        """What the libraries of standardwebhooks.com do."""
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
            except Refused as reason:
                print("refused:", reason, flush=True)
                self.answer(401, "not for us")
                return
            except OSError as reason:  # the keys could not be fetched: the server tries again
                print("put off:", reason, flush=True)
                self.answer(503, "later, please")
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
