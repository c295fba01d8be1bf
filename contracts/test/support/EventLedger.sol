// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorizations} from "../../src/gateway/Authorizations.sol";
import {Batches} from "../../src/gateway/Batches.sol";
import {Deposits} from "../../src/gateway/Deposits.sol";
import {InstantWithdrawals} from "../../src/gateway/InstantWithdrawals.sol";
import {Withdrawals} from "../../src/gateway/Withdrawals.sol";
import {Vm} from "./Vm.sol";

/// @title EventLedger
///
/// @notice What someone knows who reads nothing but the gateway's log, as the service does when it reconciles.
contract EventLedger {
    mapping(address account => int256 value) public balance;
    mapping(address account => mapping(bytes32 nonce => uint256 count)) public timesUsed;

    /// The sum of all changes by batches so far. It must be zero after each.
    int256 public batchSum;

    function read(Vm.Log[] calldata logs, address gateway) external {
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].emitter == gateway) _read(logs[i]);
        }
    }

    function _read(Vm.Log calldata log) private {
        bytes32 topic = log.topics[0];
        if (topic == Deposits.Deposited.selector) {
            balance[_address(log.topics[2])] += int256(abi.decode(log.data, (uint256)));
        } else if (topic == Batches.PayeeCredited.selector) {
            int256 value = int256(abi.decode(log.data, (uint256)));
            balance[_address(log.topics[2])] += value;
            batchSum += value;
        } else if (topic == Authorizations.PaymentSettled.selector) {
            (bytes32 nonce, uint256 value) = abi.decode(log.data, (bytes32, uint256));
            balance[_address(log.topics[1])] -= int256(value);
            batchSum -= int256(value);
            timesUsed[_address(log.topics[1])][nonce] += 1;
        } else if (topic == Withdrawals.WithdrawalCompleted.selector) {
            balance[_address(log.topics[2])] -= int256(abi.decode(log.data, (uint256)));
        } else if (topic == InstantWithdrawals.InstantWithdrawal.selector) {
            (, uint256 value,,) = abi.decode(log.data, (address, uint256, uint256, uint256));
            balance[_address(log.topics[2])] -= int256(value);
        }
    }

    function _address(bytes32 topic) private pure returns (address) {
        return address(uint160(uint256(topic)));
    }
}
