"""The container file, the compose file, and the example for nginx, which runs before a real service."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import httpx2
import pytest

from qacal.model.saved import load
from qacal.model.versions import versions
from qacal.service.audits import Label
from qacal.service.settings import Settings
from qacal.service.store import Store
from tests.cli.test_cli import run
from tests.service.servers import running
from tests.service.test_app import KEY, ROWS
from tests.service.test_learning import TRUTH, fill
from tests.service.test_serve import free_port

ROOT = Path(__file__).parents[2]
NGINX = shutil.which("nginx")


def container():
    return (ROOT / "Containerfile").read_text(encoding="utf-8")


def test_the_container_file_copies_what_exists_and_installs_extras_that_exist():
    text = container()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [name for line in re.findall("(?m)^COPY (?!--)(.+) \\S+$", text) for name in line.split()]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {*re.findall("--extra (\\w+)", text)} == {"serve", "text"}
    assert {"serve", "text"} <= {*extras}
    assert f"EXPOSE {Settings({'m': 'm'}).port}" in text


def test_the_commands_of_the_container_and_of_compose_are_those_of_serve():
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    entry = json.loads(re.search("(?m)^ENTRYPOINT (.+)$", container()).group(1))
    assert entry[:2] == ["qacal", "serve"]
    service, database = compose["services"]["qacal"], compose["services"]["db"]
    _, helped, _ = run("serve", "--help")
    for option in (one for one in entry + service["command"] if one.startswith("--")):
        assert option in helped, option
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    assert service["ports"] == ["127.0.0.1:8321:8321"]
    assert {*service["environment"]} == {"QACAL_API_KEY", "PGPASSWORD"}
    assert "@db/qacal" in service["command"][-1]
    assert (database["environment"]["POSTGRES_USER"], database["environment"]["POSTGRES_DB"]) == ("qacal", "qacal")
    assert service["depends_on"]["db"]["condition"] == "service_healthy"
    assert [volume.split(":")[0] for volume in database["volumes"]] == list(compose["volumes"])


def test_the_commands_for_labels_and_a_refit_work(folder, tmp_path, monkeypatch):
    """They run without Docker, on SQLite: with the folder of the user, and the name under which the service serves."""
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").partition("## Labels and a refit")[2]
    section = text.partition("\n## ")[0]
    command = compose["services"]["qacal"]["command"]
    assert "--store-text" not in command  # texts are stored only if asked
    assert f"STORE={command[-1]}\n" in section
    assert re.search(r'--entrypoint qacal (\w+) "\$@"', section)[1] in compose["services"]
    assert Path(command[0]).name == "model"
    assert "./models:/models:ro" in compose["services"]["qacal"]["volumes"]

    monkeypatch.chdir(tmp_path)
    model = load(folder)
    model.decision_rule_ = None
    Path("models").mkdir()
    model.save("models/model")
    url = f"sqlite:///{tmp_path / 'served.db'}"
    fill(url, "models/model")
    lines = [line.partition("#")[0] for line in section.splitlines() if line.startswith("    in_container ")]
    for line in lines:
        _, *arguments = shlex.split(line.replace("$STORE", url))
        code, _, said = run(*arguments)
        assert code == 0, said
        if arguments[0] == "label-next":
            items = json.loads(Path("to_label.json").read_text(encoding="utf-8"))["items"]
            assert "-d @to_label.json" in section
            store = Store(url)
            store.label([Label(one["id"], TRUTH[one["question"]], one["source"]) for one in items]).result(20)
            store.close()
    assert [shlex.split(line)[1] for line in lines] == ["label-next", "watch", "refit", "versions"]
    assert len(versions("models/model")) == 2


def test_the_examples_for_proxies_let_bodies_pass_that_the_service_takes():
    """Caddy's MB is a million bytes, and MiB and the m of nginx are 2**20."""
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    most = [int(re.search(pattern, text)[1]) for pattern in (r"client_max_body_size (\d+)m;", r"max_size (\d+)MiB\n")]
    assert [2**20 * one for one in most] == [Settings({"m": "m"}).max_body] * 2


@pytest.fixture
def proxied(folder, tmp_path):
    """Return the address of nginx with the configuration of the documentation before a service."""
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    site = re.search("```nginx\n(.+?)```", text, re.DOTALL).group(1)
    files = tmp_path / "nginx"
    files.mkdir()
    subject = ["-subj", "/CN=localhost", "-keyout", str(files / "key"), "-out", str(files / "certificate")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject],
        check=True,
        capture_output=True,
    )
    with running(folder, tmp_path, api_key=KEY) as (_, address):
        port = free_port()
        for old, new in (
            ("127.0.0.1:8321", address.removeprefix("http://")),
            ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
            ("/etc/ssl/qacal.pem", str(files / "certificate")),
            ("/etc/ssl/qacal.key", str(files / "key")),
        ):
            assert old in site
            site = site.replace(old, new)
        paths = "".join(
            f"{name}_temp_path {files}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = f"daemon off;\npid {files}/pid;\nerror_log {files}/errors;\nevents {{}}\n"
        config += f"http {{\naccess_log off;\n{paths}{site}}}\n"
        (files / "nginx.conf").write_text(config, encoding="utf-8")
        server = subprocess.Popen([NGINX, "-c", str(files / "nginx.conf")], stderr=subprocess.PIPE)
        try:
            with httpx2.Client(
                base_url=f"https://127.0.0.1:{port}",
                verify=False,
                timeout=20,
                transport=httpx2.HTTPTransport(verify=False, retries=10),
            ) as client:
                yield client
        finally:
            server.terminate()
            server.communicate(timeout=20)


@pytest.mark.heavy
@pytest.mark.skipif(NGINX is None, reason="needs nginx: apt-get install nginx")
def test_the_example_for_nginx_works(proxied):
    key = {"authorization": f"Bearer {KEY}"}
    assert proxied.get("/healthz").status_code == 200
    assert proxied.get("/v1/model").status_code == 401
    found = proxied.post("/v1/calibrate", json={"items": ROWS[:2]}, headers=key).json()["results"]
    assert len(found) == 2
    assert proxied.get("/metrics", headers=key).status_code == 403
    assert proxied.post("/v1/calibrate", content=b" " * (9 * 2**20), headers=key).status_code == 413
    # The page: the service sees the host of the proxy as its own, and that it is reached by TLS.
    origin = {"origin": str(proxied.base_url).rstrip("/")}
    reply = proxied.post("/login", data={"key": KEY}, headers=origin)
    assert reply.status_code == 303
    assert "Secure" in reply.headers["set-cookie"]
    assert "Try an answer" in proxied.get("/").text
    form = {**{name: ROWS[0][name] for name in ("question", "answer")}, "confidence": "0.9"}
    assert "calibrated" in proxied.post("/", data=form, headers=origin).text
    assert proxied.post("/", data=form, headers={"origin": "https://evil.example"}).status_code == 403
