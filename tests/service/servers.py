"""A service in a thread of the test, on a port of its own."""

import threading
import time
from contextlib import contextmanager

import uvicorn

from qacal.service.app import create_app
from qacal.service.settings import Settings
from tests.service.test_serve import free_port


@contextmanager
def running(folder, tmp_path, **others):
    """Start a service; yield its application and its address."""
    settings = Settings(
        {"m": str(folder)},
        **{"port": free_port(), "store": f"sqlite:///{tmp_path / 'served.db'}", "reload_seconds": 0.0, **others},
    )
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, port=settings.port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield app, f"http://127.0.0.1:{settings.port}"
    finally:
        server.should_exit = True
        thread.join()
