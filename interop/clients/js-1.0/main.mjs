// @a2a-js/sdk 1.0.

import * as sdk from '@a2a-js/sdk';
import * as client from '@a2a-js/sdk/client';
import * as grpc from '@a2a-js/sdk/client/grpc';
import { run } from '../js-common/run.mjs';
import { scenarios } from '../js-common/v1.mjs';

await run(scenarios({ ...sdk, ...client, ...grpc }));
